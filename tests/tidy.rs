//! Checks comments for the worst patterns of unclear English (CONTRIBUTING.md).

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "support/sources.rs"]
mod sources;

use sources::{root, rust_files};
use std::fs;

/// Maximum number of words in a sentence. The aim is 20.
const WORDS_MAX: usize = 30;

/// Phrases of poor English, with better ones.
const PHRASES: &[(&str, &str)] = &[
    ("from which on", "from, or since"),
    ("of which there", "name the thing again"),
    ("is to be gone", "name what happens next"),
    ("had its time", "past its deadline"),
    ("it is said again", "logged again"),
];

/// Folders with Rust sources.
const FOLDERS: [&str; 7] = ["crashtest", "fuzz/fuzz_targets", "loadgen", "perf", "sim", "src", "tests"];

#[test]
fn sentences_of_comments_are_short_and_name_things() {
    let mut sentences = 0;
    let mut bad = Vec::new();
    for folder in FOLDERS {
        for file in rust_files(&root().join(folder)) {
            let text = fs::read_to_string(&file).expect("a source");
            for (line, comment) in comments(&text) {
                for sentence in sentences_of(&comment) {
                    sentences += 1;
                    let place = || format!("{}:{line}", file.strip_prefix(root()).unwrap_or(&file).display());
                    let words = sentence.split_whitespace().count();
                    if words > WORDS_MAX {
                        bad.push(format!("{}: {words} words: {sentence}", place()));
                    }
                    let phrases = PHRASES.iter().filter(|(phrase, _)| sentence.contains(phrase));
                    bad.extend(phrases.map(|(phrase, better)| format!("{}: {phrase:?}: say {better}", place())));
                }
            }
        }
    }
    assert!(sentences > 10_000, "{sentences} sentences are too few: sources are missing");
    assert!(bad.is_empty(), "{} comments to rewrite\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn comments_and_their_sentences_are_found() {
    let source = "//! One. Two\n//! goes on.\n\n/// A list:\n/// - item\n///\n/// ```text\n/// not this one\n/// ```\nfn f() {\n    \
                  // Three; four.\n    g(); // beside code\n}\n";
    let found: Vec<_> = comments(source)
        .into_iter()
        .flat_map(|(line, comment)| sentences_of(&comment).into_iter().map(move |sentence| (line, sentence)))
        .collect();
    let expected = [(1, "One."), (1, "Two goes on."), (4, "A list:"), (5, "- item"), (11, "Three;"), (11, "four.")];
    assert_eq!(found, expected.map(|(line, sentence)| (line, sentence.to_owned())));
}

/// Returns the paragraphs and list items of all comments on lines of their own, each with the number of its first line.
/// Blocks of code in comments are left out.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut goes_on, mut is_code) = (false, false);
    for (at, line) in source.lines().enumerate() {
        let text = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim());
        let Some(text) = text else {
            (goes_on, is_code) = (false, false);
            continue;
        };
        is_code ^= text.starts_with("```");
        let is_item = text.starts_with("- ") || text.starts_with("* ");
        let is_prose = !text.is_empty() && !is_code && !text.starts_with(['|', '#']) && !text.starts_with("```");
        match found.last_mut() {
            Some((_, comment)) if goes_on && is_prose && !is_item => {
                comment.push(' ');
                comment.push_str(text);
            }
            _ if is_prose => found.push((at + 1, text.to_owned())),
            _ => {}
        }
        goes_on = is_prose;
    }
    found
}

/// Splits a comment into sentences. A colon or a semicolon also ends a sentence.
fn sentences_of(comment: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    for word in comment.split_whitespace() {
        let sentence = sentences.last_mut().expect("a sentence has begun");
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        if word.ends_with(['.', '!', '?', ':', ';']) {
            sentences.push(String::new());
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}
