//! Dependencies between modules point one way. The tests compare the layers of docs/architecture.md with the `crate::`
//! paths of the source.

#[path = "support/sources.rs"]
mod sources;

use sources::{root, rust_files};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// All modules, the lowest layer last. A module uses only modules of lower lines.
const LAYERS: &str = "
    offline  server  switch
    cli  conn
    serve
    api
    metrics
    etcd  watch
    form  journal  options
    auth  cluster  media_type  patch  pki  table
    codec  listener  selector  tls  verb
    clock  http1  lease  route  transport
    api_error  buffer  http2  logging  timestamp
    go  schedule
    build_info  engine  features  handover  hpack  http  limits  resource  shards  updates
";

/// Modules that know sockets or framing. Only these modules and the modules in [`SERVING`] may use them.
const PROTOCOLS: [&str; 5] = ["hpack", "http1", "http2", "listener", "transport"];
const SERVING: [&str; 3] = ["conn", "serve", "server"];
/// Modules that the modules in [`PROTOCOLS`] may use besides each other.
const SHARED_WITH_PROTOCOLS: [&str; 3] = ["buffer", "http", "limits"];

/// A use of one module by another: the using module, the used module, and the file of the use.
type Edge = (String, String, PathBuf);

#[test]
fn the_layers_match_the_page_and_contain_every_module() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    assert!(page.contains(LAYERS), "docs/architecture.md and tests/architecture.rs have different layers");
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("src/lib.rs");
    let declared: BTreeSet<_> = lib.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';')).collect();
    assert_eq!(LAYERS.split_whitespace().collect::<BTreeSet<_>>(), declared);
}

#[test]
fn a_module_uses_only_modules_below_it() {
    let edges = edges();
    assert!(edges.iter().any(|(from, to, _)| (from.as_str(), to.as_str()) == ("serve", "api")), "no edges were found");
    let layer = |module: &str| LAYERS.lines().position(|line| line.split_whitespace().any(|name| name == module));
    let is_wrong = |(from, to, _): &&Edge| layer(from) >= layer(to);
    assert_none(&edges.iter().filter(is_wrong).collect::<Vec<_>>());
}

#[test]
fn protocols_and_the_api_do_not_depend_on_each_other() {
    let edges = edges();
    let is_protocol = |module: &String| PROTOCOLS.contains(&module.as_str());
    let is_wrong = |(from, to, _): &&Edge| {
        let may_use = is_protocol(to) || SHARED_WITH_PROTOCOLS.contains(&to.as_str());
        let may_be_used = is_protocol(from) || SERVING.contains(&from.as_str());
        is_protocol(from) && !may_use || is_protocol(to) && !may_be_used
    };
    assert_none(&edges.iter().filter(is_wrong).collect::<Vec<_>>());
}

/// The other tests of this file find only `crate::` paths. They would miss a dependency on another module through a
/// `super::` path. So this test forbids such a path.
#[test]
fn dependencies_on_other_modules_use_crate_paths() {
    let outside: Vec<_> =
        sources().into_iter().filter(|(file, source)| leaves_module(file, source)).map(|(file, _)| file).collect();
    assert!(outside.is_empty(), "crate:: in the place of super:: in {outside:?}");
    for (file, source, is_wrong) in [
        ("a.rs", "use super::table::Table;", true),
        ("a.rs", "fn f() -> super::D {}", true),
        ("a.rs", "pub(super) fn f() {}", false),
        ("a.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n", false),
        ("a/mod.rs", "use super::table::Table;", true),
        ("a/b.rs", "use super::table::Table;", false),
        ("a/b.rs", "use super::super::table::Table;", true),
    ] {
        assert_eq!(leaves_module(Path::new(file), source), is_wrong, "{file}: {source}");
    }
}

#[test]
fn paths_are_found_in_code_and_not_in_tests() {
    let source = "\
//! See [`x`](crate::comment::X).
use crate::{alone, nested::{inner, Other}, last};
use crate::plain::deep::{A, B};
#[cfg(test)]
use crate::in_test::C;
fn f() -> crate::signature::D {
    crate::call::e()
}
#[cfg(test)]
mod tests {
    use crate::in_tests::F;
}
static G: u8 = crate::behind::G;
";
    let found = used_modules(source);
    let expected = ["alone", "behind", "call", "last", "nested", "plain", "signature"];
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[track_caller]
fn assert_none(wrong: &[&Edge]) {
    let lines: Vec<_> =
        wrong.iter().map(|(from, to, file)| format!("{from} uses {to} in {}", file.display())).collect();
    assert!(lines.is_empty(), "docs/architecture.md does not allow these uses\n{}", lines.join("\n"));
}

fn edges() -> Vec<Edge> {
    let mut edges = Vec::new();
    for (file, source) in sources() {
        let first = file.iter().next().and_then(|first| first.to_str()).expect("a name in ASCII");
        let from = first.trim_end_matches(".rs");
        let used = used_modules(&source).into_iter().filter(|to| to != from);
        edges.extend(used.map(|to| (from.to_owned(), to, Path::new("src").join(&file))));
    }
    edges
}

/// Whether a `super::` path in `source`, outside of its tests, leads out of the file's top-level module. `file` is a
/// path below `src`. A file `mod.rs` is the module of its folder, so it has one parent less.
fn leaves_module(file: &Path, source: &str) -> bool {
    let depth = file.components().count() - usize::from(file.ends_with("mod.rs"));
    without_tests(source).contains(&"super::".repeat(depth))
}

/// Returns the files of the library below `src` with their text. Files with only tests, `lib.rs` and the program's
/// `main.rs` are left out.
fn sources() -> Vec<(PathBuf, String)> {
    let src = root().join("src");
    rust_files(&src)
        .into_iter()
        .map(|path| (path.strip_prefix(&src).expect("below src").to_owned(), path))
        .filter(|(file, _)| !is_test(file) && file != Path::new("lib.rs") && file != Path::new("main.rs"))
        .map(|(file, path)| (file, fs::read_to_string(path).expect("a source file")))
        .collect()
}

/// Whether a file has only tests.
fn is_test(file: &Path) -> bool {
    file.iter().any(|part| part == "tests") || file.to_str().is_some_and(|name| name.ends_with("tests.rs"))
}

/// Returns the names of the used modules: those after each `crate::`, outside of comments and tests.
fn used_modules(source: &str) -> BTreeSet<String> {
    let code = without_tests(source);
    code.split("crate::").skip(1).flat_map(first_names).collect()
}

/// Removes comments and test items. rustfmt indents the last line of an item like its first line. So a test item ends
/// with the first line of this indentation that ends with a comma, a semicolon or a brace.
fn without_tests(source: &str) -> String {
    let mut code = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() == "#[cfg(test)]" {
            let indent = line.len() - line.trim_start().len();
            lines.find(|line| {
                let is_outer = line.len() - line.trim_start().len() == indent;
                is_outer && line.ends_with([',', ';', '}'])
            });
        } else {
            code.push_str(line.split("//").next().unwrap_or_default());
            code.push('\n');
        }
    }
    code
}

/// Returns the first name of each path after `crate::`. There are several if braces follow: `{a::B, c}` gives `a` and
/// `c`.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0;
    let end = list.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0
    });
    let mut depth = 0;
    let parts = list[..end.unwrap_or(list.len())].split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.map(|part| name(part.trim_start())).filter(|name| !name.is_empty()).collect()
}
