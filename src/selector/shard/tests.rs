//! Tests of shard selectors. The expected results are those of apiserver's `sharding.Parse` v0.37.2, except for the
//! limit on the depth, which is this project's own.

use super::*;

const HALF: &str = "0x8000000000000000";
const END: &str = "0x10000000000000000";

fn of(field: &str, start: &str, end: &str) -> String {
    format!("shardRange(object.metadata.{field}, '{start}', '{end}')")
}

fn parsed(text: &str) -> ShardSelector {
    ShardSelector::parse(text).expect(text)
}

#[test]
fn every_spelling_becomes_that_of_kube_apiserver() {
    let whole = of("uid", "0x0000000000000000", END);
    let joined = format!("{} || {}", of("uid", HALF, END), of("uid", "0x0000000000000000", HALF));
    for (text, expected) in [
        (whole.as_str(), whole.as_str()),
        (&joined, &joined),
        (&format!("  {} ||\n ({}) // both", of("uid", HALF, END), of("uid", "0x0000000000000000", HALF)), &joined),
        ("shardRange(object.metadata.uid,'0x0000000000000000',\"0x10000000000000000\")", &whole),
        ("shardRange((object).metadata.`uid`, r'0x0000000000000000', '''0x10000000000000000''')", &whole),
        (r"object.shardRange(object.metadata.uid, '\x30x00000\u00300\06000000000', '0x10000000000000000')", &whole),
        (
            "shardRange(object.metadata.namespace, '0x00000000000000aa', '0x00000000000000ff')",
            &of("namespace", "0x00000000000000aa", "0x00000000000000ff"),
        ),
    ] {
        assert_eq!(parsed(text).as_str(), expected, "{text}");
    }
}

#[test]
fn mistakes_are_told_in_kube_apiservers_words() {
    let mixed = format!("{} || {}", of("uid", "0x0000000000000000", HALF), of("namespace", HALF, END));
    for (text, expected) in [
        (" \t", "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
        ("object", "unexpected expression kind 3; expected shardRange() call or || operator"),
        ("[]", "unexpected expression kind 4; expected shardRange() call or || operator"),
        ("'shardRange'", "unexpected expression kind 5; expected shardRange() call or || operator"),
        ("{'a': 1,}", "unexpected expression kind 6; expected shardRange() call or || operator"),
        ("object.metadata.uid", "unexpected expression kind 7; expected shardRange() call or || operator"),
        ("a.b{c: 1}", "unexpected expression kind 8; expected shardRange() call or || operator"),
        (
            "hash(object.metadata.uid, '0x00', '0x80')",
            "unsupported function \"hash\"; only shardRange() and || are allowed",
        ),
        (".shardRange()", "unsupported function \".shardRange\"; only shardRange() and || are allowed"),
        (
            "shardRange(a, '0', '1') && shardRange(a, '1', '2')",
            "unsupported function \"_&&_\"; only shardRange() and || are allowed",
        ),
        ("object.metadata.uid > '0x0'", "unsupported function \"_>_\"; only shardRange() and || are allowed"),
        ("a in b", "unsupported function \"@in\"; only shardRange() and || are allowed"),
        ("!a", "unsupported function \"!_\"; only shardRange() and || are allowed"),
        ("-a.b(1)", "unsupported function \"-_\"; only shardRange() and || are allowed"),
        ("a ? b : c", "unsupported function \"_?_:_\"; only shardRange() and || are allowed"),
        ("a[0]", "unsupported function \"_[_]\"; only shardRange() and || are allowed"),
        ("1 + 2 * 3", "unsupported function \"_+_\"; only shardRange() and || are allowed"),
        ("shardRange()", "shardRange() requires exactly 3 arguments, got 0"),
        ("shardRange(object.metadata.uid, '0x0')", "shardRange() requires exactly 3 arguments, got 2"),
        (
            "shardRange('object.metadata.uid', '0x0', '0x8')",
            "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind 5",
        ),
        (
            "shardRange(f(x).uid, '0x0', '0x8')",
            "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind 1",
        ),
        (
            "shardRange(object.metadata.name, '0x00', '0x80')",
            "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, \
             object.metadata.namespace",
        ),
        (
            "shardRange(metadata.uid, '0x00', '0x80')",
            "unsupported field path \"metadata.uid\"; supported: object.metadata.uid, object.metadata.namespace",
        ),
        ("shardRange(object.metadata.uid, 0, 8)", "hexStart must be a string literal, got int64"),
        ("shardRange(object.metadata.uid, 0u, 8)", "hexStart must be a string literal, got uint64"),
        ("shardRange(object.metadata.uid, .5, 8)", "hexStart must be a string literal, got float64"),
        ("shardRange(object.metadata.uid, true, 8)", "hexStart must be a string literal, got bool"),
        ("shardRange(object.metadata.uid, null, 8)", "hexStart must be a string literal, got structpb.NullValue"),
        ("shardRange(object.metadata.uid, b'0', 8)", "hexStart must be a string literal, got []uint8"),
        (
            "shardRange(object.metadata.uid, hex(0), '0x8')",
            "hexStart must be a string literal (e.g. '0xff'), got expression kind 1",
        ),
        (
            "shardRange(object.metadata.uid, '0x0000000000000000', [])",
            "hexEnd must be a string literal (e.g. '0xff'), got expression kind 4",
        ),
        (
            "shardRange(object.metadata.uid, '0000000000000000', '0x8000000000000000')",
            "hexStart must have '0x' prefix, got \"0000000000000000\"",
        ),
        ("shardRange(object.metadata.uid, '0x', '0x8')", "hexStart: hex value is required after '0x'"),
        (
            "shardRange(object.metadata.uid, '0x000000000000000000', '0x80')",
            "hexStart: hex value too long (18 chars, max 17): \"000000000000000000\"",
        ),
        ("shardRange(object.metadata.uid, '0x0g', '0x80')", "hexStart: invalid hex character \"g\" in \"0x0g\""),
        ("shardRange(object.metadata.uid, '0xA', '0x80')", "hexStart: invalid hex character \"A\" in \"0xA\""),
        (
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x20000000000000000')",
            "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
        ),
        (
            "shardRange(object.metadata.uid, '0xff', '0x8000000000000000')",
            "hexStart must be a 0x-prefixed 16-digit hex value, got \"0xff\" (did you mean \"0x00000000000000ff\"?)",
        ),
        (&of("uid", HALF, HALF), "shard range start 0x8000000000000000 must be less than end 0x8000000000000000"),
        (
            &of("uid", END, "0xffffffffffffffff"),
            "shard range start 0x10000000000000000 must be less than end 0xffffffffffffffff",
        ),
        (
            &mixed,
            "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
        ),
        ("shardRange(object.metadata.uid, 0x0, 0x8000000000000000)", "CEL parse error: invalid int literal"),
        ("namespace", "CEL parse error: reserved identifier: namespace"),
        ("a.?b", "CEL parse error: unsupported syntax '.?'"),
        (r"f('\uD800')", "CEL parse error: invalid unicode code point"),
        (&"(".repeat(51), "CEL parse error: expression recursion limit exceeded: 50"),
    ] {
        let status = ShardSelector::parse(text).expect_err(text).status();
        let message = status.message.strip_prefix("invalid shard selector: ");
        assert_eq!((status.code, message), (500, Some(expected)), "{text}");
    }
}

/// kube-apiserver's message depends on the alternatives that its generated parser tried. This server's message only
/// begins with the same words.
#[test]
fn text_that_is_not_an_expression_is_a_syntax_error() {
    for text in [
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000'",
        "shardRange(object.metadata.uid '0x0', '0x8')",
        "shardRange(object.metadata.uid, '0x0, 0x8)",
        "shardRange(,)",
        "shardRange(a,)",
        "a || ",
        "a | b",
        "a b",
        "(a",
        "a)",
        "a.",
        "a.in",
        ".",
        "`a`",
        "'a\nb'",
        r"'\q'",
        "#",
        "é",
    ] {
        let message = ShardSelector::parse(text).expect_err(text).status().message;
        assert!(message.starts_with("invalid shard selector: CEL parse error: Syntax error: "), "{text}: {message}");
    }
}

#[test]
fn hashes_are_those_of_fnv_1a() {
    // Test vectors of draft-eastlake-fnv.
    for (text, hash) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)] {
        assert_eq!(fnv_1a(text), hash, "{text}");
    }
}

#[test]
fn a_range_has_its_start_and_not_its_end() {
    let selector = parsed(&format!(
        "{} || {} || {}",
        of("uid", "0x00000000000000ff", "0x0000000000000100"),
        of("uid", "0xfffffffffffffff0", END),
        of("uid", "0xfffffffffffffff8", END),
    ));
    for (hash, expected) in
        [(0, false), (0xfe, false), (0xff, true), (0x100, false), (u64::MAX - 16, false), (u64::MAX - 15, true)]
    {
        assert_eq!(selector.has(ShardHash(hash)), expected, "{hash:x}");
    }
    assert!(selector.has(ShardHash(u64::MAX)));
    assert_eq!(selector.parts().collect::<Vec<_>>(), [RingPart(0), RingPart(63)]);
    let meta = ObjectMeta { namespace: "foobar".into(), ..ObjectMeta::default() };
    let of_foobar = of("namespace", "0x85944171f73967e8", "0x85944171f73967e9");
    assert!(parsed(&of_foobar).matches(&meta));
    assert!(!parsed(&of_foobar.replace("namespace", "uid")).matches(&meta));
}

/// Goal: if the selector selects a hash, it also returns the part of the ring that contains the hash. It returns each
/// part once. Method: compare random ranges, and hashes near their ends, with the ranges as they were drawn.
#[test]
fn a_selector_names_the_parts_of_its_hashes_once_each() {
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..2_000 {
        let ranges: Vec<_> = (0..rng.usize(1..6))
            .map(|_| {
                let start = rng.u64(..u64::MAX) & if rng.bool() { u64::MAX } else { 0xff << 56 };
                let len = rng.u64(1..=u64::MAX) >> rng.u32(0..64);
                (start, start.saturating_add(len).max(start + 1))
            })
            .collect();
        let text = |(start, end): &(u64, u64)| of("uid", &format!("0x{start:016x}"), &format!("0x{end:016x}"));
        let selector = parsed(&ranges.iter().map(text).collect::<Vec<_>>().join(" || "));
        let parts: Vec<_> = selector.parts().map(|part| part.0).collect();
        assert!(parts.is_sorted_by(|one, next| one < next), "{parts:?}");
        let near = ranges.iter().flat_map(|(start, end)| [start.wrapping_sub(1), *start, end - 1, *end]);
        for hash in near.chain([rng.u64(..), rng.u64(..)]) {
            let expected = ranges.iter().any(|(start, end)| (*start..*end).contains(&hash));
            assert_eq!(selector.has(ShardHash(hash)), expected, "{hash:x} in {ranges:x?}");
            assert!(!expected || parts.contains(&ShardHash(hash).part().0), "{hash:x} in {ranges:x?}");
        }
    }
}

#[test]
fn no_text_panics() {
    const WORDS: &[&str] = &[
        "shardRange",
        "(",
        ")",
        ",",
        ".",
        "object",
        "'0x0000000000000000'",
        "'",
        "\"",
        "\\",
        "0x",
        "1",
        "e",
        "u",
        "||",
        "|",
        "&&",
        "-",
        "!",
        "?",
        ":",
        "[",
        "]",
        "{",
        "}",
        "`",
        "r",
        "b",
        "é",
        "//",
        "\n",
        " ",
        "in",
        "''",
        "\\u00",
        "\\7",
    ];
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..100_000 {
        let text: String = (0..rng.usize(..12)).map(|_| WORDS[rng.usize(..WORDS.len())]).collect();
        _ = ShardSelector::parse(&text);
    }
    for word in WORDS {
        _ = ShardSelector::parse(&word.repeat(10_000));
    }
}
