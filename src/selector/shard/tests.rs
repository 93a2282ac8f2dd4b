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
fn every_spelling_is_normalized_as_in_kube_apiserver() {
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
fn invalid_selectors_get_the_errors_of_kube_apiserver() {
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

/// Goal: text that is no CEL expression gets a syntax error that begins as in kube-apiserver. The rest of
/// kube-apiserver's message may differ, since it depends on the alternatives that its generated parser tried.
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
fn hashes_match_fnv_1a() {
    // Test vectors of draft-eastlake-fnv.
    for (text, hash) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)] {
        assert_eq!(fnv_1a(text), hash, "{text}");
    }
}

#[test]
fn hashes_of_uids_and_namespaces_are_kube_apiservers() {
    for (uid, hash) in UIDS {
        let meta = ObjectMeta { uid: uid.into(), namespace: "n".into(), ..ObjectMeta::default() };
        check_hash(ShardField::Uid, &meta, hash);
    }
    for (namespace, hash) in NAMESPACES {
        let meta = ObjectMeta { uid: "u".into(), namespace: namespace.into(), ..ObjectMeta::default() };
        check_hash(ShardField::Namespace, &meta, hash);
    }
}

/// Checks the hash of a field, and that only the shard with this hash contains the object.
fn check_hash(field: ShardField, meta: &ObjectMeta, hash: u64) {
    assert_eq!(field.hash(meta), ShardHash(hash), "{field:?} {meta:?}");
    let shard = |start: u64, end: u64| {
        parsed(&format!("shardRange({}, '0x{start:016x}', '0x{end:016x}')", field.path())).matches(meta)
    };
    let found = [shard(0, hash), shard(hash, hash + 1), shard(hash + 1, u64::MAX)];
    assert_eq!(found, [false, true, false], "{field:?} {meta:?}");
}

#[test]
fn a_range_includes_its_start_and_excludes_its_end() {
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
/// part once. Method: parse random ranges. Then compare the selector with these ranges, at hashes near the ends of the
/// ranges.
#[test]
fn a_selector_lists_each_ring_part_of_its_hashes_once() {
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
    let words = r#"shardRange ( ) , . object '0x0000000000000000' ' " \ 0x 1 e u || | && - ! ? : [ ] { } ` r b é //
        in '' \u00 \7"#;
    let words: Vec<_> = words.split_whitespace().chain([" ", "\n"]).collect();
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..100_000 {
        let text: String = (0..rng.usize(..12)).map(|_| words[rng.usize(..words.len())]).collect();
        _ = ShardSelector::parse(&text);
    }
    for word in words {
        _ = ShardSelector::parse(&word.repeat(10_000));
    }
}

/// UIDs and their hashes, as a Go program printed them with `sharding.HashField` of k8s.io/apimachinery v0.37.2. The
/// program took each value from a Lease with `sharding.ResolveFieldValue`, as kube-apiserver does.
const UIDS: [(&str, u64); 36] = [
    ("343deaf5-7468-4402-bda1-bbf4cb2f66a1", 0x6b12_6cd2_1e7e_5412),
    ("182ac96f-d690-4c14-bc87-6b285e140e20", 0x6338_c126_c64c_7606),
    ("ce4cc913-d03e-44f4-9f84-00b7bfa769d5", 0x2d75_cc8d_9dfd_99d6),
    ("ef175533-b8b5-4397-9542-f915b0f6d83a", 0x2bfe_e6e5_df82_711f),
    ("a18e9161-2754-46f9-b52e-402efab4ab41", 0xf7ee_62aa_52a5_55a4),
    ("b4d37387-29a2-4add-9263-e246580e542f", 0x2bd2_51b1_1bf2_cbce),
    ("fb38008f-f346-4cb9-bac7-9eac563b0bdc", 0xf6ef_b7cc_c3a2_2fe1),
    ("7b678b38-0a9b-46c2-a242-bd447e92e633", 0x35fc_44e2_1a8a_8052),
    ("e8542bf9-4ebe-45ea-9682-37f5557a7cdd", 0x9a3e_4ec3_7d69_5707),
    ("1b53b1e4-5b8c-4949-b342-f021f2d98615", 0x9e0e_6908_6b4a_7caf),
    ("ed8fb936-4c33-4871-b2a8-3ed35d34412a", 0x2c05_8cf0_a162_e499),
    ("d061c1f4-1666-4633-931a-5784ef2b0eb2", 0xa43c_bc67_5c18_e8b9),
    ("4420e2e3-25db-46db-84f1-97661b777d86", 0x0b0f_19b4_c20c_7a66),
    ("cf05a783-9c30-4dd9-ab7c-32107c4bcbdc", 0x03c0_f898_7ba5_11b7),
    ("c70546a1-8162-4e4d-8799-0d879c05ad34", 0x89e5_3daf_a810_f2c7),
    ("bed14a7f-fb16-42c7-a73c-a8b5bc9fdb0e", 0xd05e_978e_4eb5_179b),
    ("7243e8f3-2c57-4722-a688-dc1b3a82860b", 0x6283_5d63_9186_0d4e),
    ("669a1831-5a7e-460b-9652-1c7ff51a14f2", 0xc893_884c_2ad8_c7b3),
    ("6adf0d30-1d1b-4734-ba27-7619115d7d72", 0xfd94_d7c3_a8c7_ac59),
    ("8412b115-7442-4cd9-98c7-24befa4adc9e", 0x2544_2f00_5a36_333b),
    ("4b875205-1507-4486-ab02-3ae349255baa", 0xc84d_b606_32ec_230d),
    ("db160114-a0c3-4bc5-8e69-f870b74e1761", 0xac3c_4504_ade0_0d7f),
    ("23158f77-10c7-46b2-b427-ee0e3bb670b6", 0x6c3e_1ece_6d3b_03fb),
    ("b7e575d5-2149-4818-80cc-deea31f93e5b", 0xcd19_b6a5_278e_88fd),
    ("fc929c51-f9bc-4840-9372-19c1712ad80a", 0x1dff_7dce_13e4_8a82),
    ("785f2f43-99f0-4ca5-b442-e7ab292f0a34", 0xd95d_c0b2_19c2_6179),
    ("7e482ff7-92b7-40f6-9d97-db821731dbe6", 0x5880_132c_247c_c23c),
    ("c1a9b1a4-f70e-433f-8d42-cf0b46df40ce", 0x43c7_f578_946b_769a),
    ("792ce272-e9dd-4004-af11-c0cd6579ad39", 0xe210_fdab_9d59_42a9),
    ("e2651f8d-8b70-45c7-b90d-38e0fe8c37b8", 0x299e_5849_6baf_e1a7),
    ("22b6c18a-5276-492e-9745-af2b8f91c562", 0xc531_cd51_cdd5_d038),
    ("56c75d5a-93af-4dc1-ac2a-dcfee93c22ff", 0x9fd9_2f09_5af1_9d41),
    ("f73cef91-7851-4039-8007-d7a7b7ee0726", 0xdaf1_d3de_46d5_a2c8),
    ("93f356d3-c19f-407c-9d86-313348e9d9cf", 0x6485_3cf4_468a_b654),
    ("", 0xcbf2_9ce4_8422_2325),
    ("u1", 0x08c4_7b07_b567_47f3),
];

/// Namespaces and their hashes, as the Go program of [`UIDS`] printed them.
const NAMESPACES: [(&str, u64); 16] = [
    ("", 0xcbf2_9ce4_8422_2325),
    ("a", 0xaf63_dc4c_8601_ec8c),
    ("b", 0xaf63_df4c_8601_f1a5),
    ("default", 0xebad_a516_8620_c5fe),
    ("kube-system", 0xdf65_c7bc_1d82_b35e),
    ("kube-node-lease", 0x021f_b6dd_71b8_0174),
    ("kube-public", 0x917f_b081_f1a6_5f5a),
    ("team-a", 0xde90_a371_7d12_52d6),
    ("team-b", 0xde90_a271_7d12_5123),
    ("tenant-0", 0xc2ef_b028_e3eb_eed8),
    ("tenant-1", 0xc2ef_b128_e3eb_f08b),
    ("tenant-2", 0xc2ef_b228_e3eb_f23e),
    ("0", 0xaf63_ad4c_8601_9caf),
    ("monitoring", 0x799e_ff3f_a02c_1887),
    ("x-y-z-0123456789", 0x1d03_1704_655f_b96e),
    ("n23456789012345678901234567890123456789012345678901234567890123", 0x07dc_f26c_510f_ffc6),
];
