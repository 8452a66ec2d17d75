use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::*;

const PERMIT: &str = "00112233445566778899aabbccddeeff";

/// A step that passes; each test spoils one thing.
struct Case {
    expected: Expectation,
    seen: Seen,
    behind: i64,
    scope: Scope,
}

impl Case {
    fn passing() -> Self {
        let value = Content::Hash(BTreeMap::from([("$A:1".to_owned(), Field::Text("1".to_owned()))]));
        let ttl = Ttl::Recorded(Range { min: 600, max: 1_005 });
        let fields = BTreeMap::from([(b"id-a:1".to_vec(), b"1".to_vec())]);
        let found = Found { content: FoundContent::Hash(fields), pttl: 1_000 };
        Self {
            expected: Expectation {
                result: ExpectedResult::Value(json!(true)),
                elapsed: None,
                patience: None,
                keyspace: BTreeMap::from([("k".to_owned(), Entry { value, ttl })]),
                published: vec![message("c:$A", "0")],
                matching: PublishedMatch::Exact,
            },
            seen: Seen {
                result: Some(Ok(json!(true))),
                took: Some((Duration::from_millis(300), Duration::from_millis(300))),
                snapshot: BTreeMap::from([(b"k".to_vec(), found)]),
                heard: vec![heard("c:id-a", "0")],
            },
            behind: 0,
            scope: Scope::Everything,
        }
    }

    fn differences(&self) -> Vec<String> {
        let names = Names::new([("A".to_owned(), "id-a".to_owned())]);
        let context = Context { names: &names, behind: self.behind, clock: 1_000_000 };
        differences(&self.expected, &self.seen, &context, self.scope, &mut Bindings::default())
    }

    #[track_caller]
    fn passes(&self) {
        assert_eq!(self.differences(), [""; 0]);
    }

    #[track_caller]
    fn fails_with(&self, words: &str) {
        let differences = self.differences();
        assert!(matches!(differences.as_slice(), [one] if one.contains(words)), "{words:?}: {differences:?}");
    }

    fn found(&mut self) -> &mut Found {
        self.seen.snapshot.get_mut(&b"k"[..]).expect("the key of the case")
    }

    fn holds(&mut self, wanted: Content, got: FoundContent) {
        self.expected.keyspace.get_mut("k").expect("the key of the case").value = wanted;
        self.found().content = got;
    }
}

fn message(channel: &str, payload: &str) -> Message {
    Message { channel: channel.to_owned(), payload: payload.to_owned() }
}

fn heard(channel: &str, payload: &str) -> Heard {
    Heard { channel: channel.into(), payload: payload.into() }
}

fn error(class: &str, code: Option<&str>) -> Option<Result<Value, CallError>> {
    Some(Err(CallError { class: class.to_owned(), code: code.map(str::to_owned), text: "text".to_owned() }))
}

fn recorded_error(kind: &str, code: Option<&str>) -> ExpectedResult {
    let mut error = RecordedError::of(kind);
    error.redis_code = code.map(str::to_owned);
    ExpectedResult::Error(error)
}

#[test]
fn a_step_as_recorded_passes() {
    Case::passing().passes();
}

#[test]
fn another_result_is_found() {
    let mut case = Case::passing();
    case.seen.result = Some(Ok(json!(false)));
    case.fails_with("returned false, expected true");
    case.seen.result = error("NotOwner", None);
    case.fails_with("failed with NotOwner");
    case.seen.result = None;
    case.fails_with("no result");
}

#[test]
fn errors_are_compared_by_type_and_code() {
    let table = [
        ("IllegalMonitorStateException", None, "NotOwner", None, true),
        ("IllegalMonitorStateException", None, "LeaseLost", None, false),
        ("RedisException", Some("WRONGTYPE"), "ForeignData", None, true),
        ("RedisException", Some("WRONGTYPE"), "Redis", Some("WRONGTYPE"), true),
        ("RedisException", Some("WRONGTYPE"), "Redis", Some("OOM"), false),
        ("RedisException", Some("ERR"), "Redis", Some("ERR"), true),
        ("RedisException", Some("ERR"), "ForeignData", None, false),
        ("Misuse::EmptyName", None, "Misuse::EmptyName", None, true),
        ("Misuse::EmptyName", None, "Misuse", None, false),
    ];
    for (kind, recorded_code, class, code, fits) in table {
        let mut case = Case::passing();
        case.expected.result = recorded_error(kind, recorded_code);
        case.seen.result = error(class, code);
        assert_eq!(case.differences().is_empty(), fits, "{kind} {recorded_code:?} and {class} {code:?}");
    }
}

#[test]
fn a_time_that_is_returned_lies_in_its_range() {
    let mut case = Case::passing();
    case.expected.result = ExpectedResult::Value(json!({"ms": [500, 900]}));
    for (ms, fits) in [(500, true), (900, true), (499, false), (901, false)] {
        case.seen.result = Some(Ok(json!(ms)));
        assert_eq!(case.differences().is_empty(), fits, "{ms}");
    }
    case.seen.result = Some(Ok(json!(499)));
    case.behind = 1;
    case.passes();
}

#[test]
fn a_ttl_lies_in_its_range_and_slowness_lowers_the_minimum_only() {
    let mut case = Case::passing();
    for (pttl, behind, fits) in
        [(600, 0, true), (1_005, 0, true), (599, 0, false), (1_006, 0, false), (590, 10, true), (1_006, 10, false)]
    {
        case.found().pttl = pttl;
        case.behind = behind;
        assert_eq!(case.differences().is_empty(), fits, "pttl {pttl}, {behind} ms behind");
    }
    case.behind = 0;
    case.found().pttl = -1;
    case.fails_with("pttl -1 outside [600, 1005]");
}

#[test]
fn a_reckoned_ttl_is_not_lowered() {
    let mut case = Case::passing();
    case.expected.keyspace.get_mut("k").expect("the key of the case").ttl =
        Ttl::Reckoned(Range { min: 999, max: 1_001 });
    case.behind = 100;
    case.passes();
    case.found().pttl = 998;
    case.fails_with("reckoned");
}

#[test]
fn a_key_without_expiry_has_none() {
    let mut case = Case::passing();
    case.expected.keyspace.get_mut("k").expect("the key of the case").ttl = Ttl::Never;
    case.fails_with("expected no expiry");
    case.found().pttl = -1;
    case.passes();
}

#[test]
fn keys_more_or_less_are_found() {
    let mut case = Case::passing();
    let found = case.seen.snapshot.remove(&b"k"[..]).expect("the key of the case");
    case.fails_with("key \"k\" is missing");
    case.seen.snapshot = BTreeMap::from([(b"k".to_vec(), found.clone()), (b"l".to_vec(), found)]);
    case.fails_with("key \"l\" must not be there: hash");
}

#[test]
fn fields_more_less_or_otherwise_are_found() {
    let mut case = Case::passing();
    let fields = |fields: &[(&str, &str)]| {
        FoundContent::Hash(
            fields.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())).collect(),
        )
    };
    case.found().content = fields(&[("id-a:1", "2")]);
    case.fails_with("field \"$A:1\" is \"2\", expected \"1\"");
    case.found().content = fields(&[]);
    case.fails_with("field \"$A:1\" is missing");
    case.found().content = fields(&[("id-a:1", "1"), ("id-a:2", "1")]);
    case.fails_with("\"id-a:2\" = \"1\" must not be there");
    case.found().content = FoundContent::Text(b"1".to_vec());
    case.fails_with("is a string, expected a hash");
}

#[test]
fn an_offset_is_a_plain_integer_counted_from_the_start_of_the_step() {
    let offset = Field::Offset(Range { min: 900, max: 1_100 });
    for (stored, fits) in [
        ("1001000", true),
        ("1000900", true),
        ("1000899", false),
        ("1001101", false),
        ("1.001e6", false),
        ("+1001000", false),
    ] {
        let mut case = Case::passing();
        let got = BTreeMap::from([(b"h:expire_time".to_vec(), stored.as_bytes().to_vec())]);
        case.holds(
            Content::Hash(BTreeMap::from([("h:expire_time".to_owned(), offset.clone())])),
            FoundContent::Hash(got),
        );
        assert_eq!(case.differences().is_empty(), fits, "{stored}");
    }
}

#[test]
fn scores_are_exact_or_offsets_and_permits_are_raw() {
    let scores = BTreeMap::from([
        ("$P1".to_owned(), Score::Exact(922_337_203_685_477)),
        ("$P2".to_owned(), Score::Offset(Range { min: -100, max: 100 })),
    ]);
    let got = |first: &str, second: &str| {
        FoundContent::Zset(BTreeMap::from([
            (b"0123456789abcdef".to_vec(), first.as_bytes().to_vec()),
            (b"fedcba9876543210".to_vec(), second.as_bytes().to_vec()),
        ]))
    };
    let mut case = Case::passing();
    let mut entry = case.expected.keyspace.remove("k").expect("the key of the case");
    entry.value = Content::Zset(scores);
    case.expected.keyspace.insert("{k}:timeout".to_owned(), entry);
    for (first, second, fits) in [
        ("922337203685477", "1000050", true),
        ("922337203685476", "1000050", false),
        ("922337203685477", "1000101", false),
    ] {
        let found = Found { content: got(first, second), pttl: 1_000 };
        case.seen.snapshot = BTreeMap::from([(b"{k}:timeout".to_vec(), found)]);
        assert_eq!(case.differences().is_empty(), fits, "{first} {second}");
    }
}

#[test]
fn a_list_keeps_its_order_and_a_set_has_none() {
    let wanted = vec!["$A:1".to_owned(), "x".to_owned()];
    let got = vec![b"x".to_vec(), b"id-a:1".to_vec()];
    let mut case = Case::passing();
    case.holds(Content::List(wanted.clone()), FoundContent::List(got.clone()));
    case.fails_with("list \"k\" is");
    case.holds(Content::Set(wanted.clone()), FoundContent::Set(got.clone()));
    case.passes();
    case.holds(Content::Set(wanted), FoundContent::Set(vec![got[0].clone(), got[0].clone()]));
    case.fails_with("set \"k\" is");
}

#[test]
fn messages_are_an_exact_sequence_unless_said_otherwise() {
    let (a, b) = (message("a", "0"), message("b", "1"));
    let (heard_a, heard_b) = (heard("a", "0"), heard("b", "1"));
    let table = [
        (PublishedMatch::Exact, vec![heard_a.clone(), heard_b.clone()], true),
        (PublishedMatch::Exact, vec![heard_b.clone(), heard_a.clone()], false),
        (PublishedMatch::Exact, vec![heard_a.clone()], false),
        (PublishedMatch::AnyOrder, vec![heard_b.clone(), heard_a.clone()], true),
        (PublishedMatch::AnyOrder, vec![heard_b.clone(), heard_b.clone()], false),
        (PublishedMatch::AnyOrder, vec![heard_a.clone(), heard_b.clone(), heard_b.clone()], false),
        (PublishedMatch::Dedup, vec![heard_b.clone(), heard_a.clone(), heard_b.clone()], true),
        (PublishedMatch::Dedup, vec![heard_a.clone(), heard_a.clone()], false),
        (PublishedMatch::Dedup, vec![heard_a.clone(), heard_b.clone(), heard("c", "0")], false),
        (PublishedMatch::Dedup, vec![heard_a, heard("b", "2")], false),
    ];
    for (matching, heard, fits) in table {
        let mut case = Case::passing();
        case.expected.published = vec![a.clone(), b.clone()];
        case.expected.matching = matching;
        case.seen.heard = heard;
        assert_eq!(case.differences().is_empty(), fits, "{matching:?} {:?}", case.seen.heard);
    }
}

#[test]
fn permits_returned_are_the_permits_stored() {
    let mut case = Case::passing();
    case.expected.result = ExpectedResult::Value(json!(["$P1", "$P2"]));
    case.seen.result = Some(Ok(json!([PERMIT, PERMIT.replace('0', "1")])));
    case.holds(Content::List(vec!["$P2".to_owned()]), FoundContent::List(vec![PERMIT.replace('0', "1").into_bytes()]));
    case.passes();
    case.found().content = FoundContent::List(vec![PERMIT.into()]);
    case.fails_with("list \"k\" is");
}

#[test]
fn a_wait_takes_as_long_as_recorded_and_never_less_than_it_was_given() {
    let mut case = Case::passing();
    case.expected.elapsed = Some(Range { min: 250, max: 400 });
    case.passes();
    case.seen.took = Some((Duration::from_millis(401), Duration::from_millis(401)));
    case.fails_with("took 401ms, expected [250, 400] ms");
    case.seen.took = Some((Duration::from_millis(10), Duration::from_millis(260)));
    case.passes();
    case.expected.elapsed = None;
    case.expected.patience = Some(300);
    case.expected.result = ExpectedResult::Value(json!(false));
    case.seen.result = Some(Ok(json!(false)));
    case.seen.took = Some((Duration::from_micros(299_900), Duration::from_secs(1)));
    case.fails_with("before its wait of 300 ms was over");
}

#[test]
fn with_local_handoff_grants_and_the_end_count_and_nothing_else() {
    let mut case = Case::passing();
    case.seen.heard.clear();
    case.found().pttl = 1;
    case.scope = Scope::GrantsAndEndState { last: false };
    case.passes();
    case.scope = Scope::GrantsAndEndState { last: true };
    case.fails_with("pttl 1");
    case.found().pttl = 1_000;
    case.seen.result = Some(Ok(json!(false)));
    case.fails_with("returned false");
}
