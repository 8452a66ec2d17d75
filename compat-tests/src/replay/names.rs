//! Placeholders of the vectors: what they stand for in this replay, and texts that contain them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{Failure, Outcome};

/// The ids the clients of a scenario have in this replay.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Client name and id; longer names first, so that `$A` never hides `$AB`.
    clients: Vec<(String, String)>,
}

/// Permit ids found so far, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bindings {
    permits: BTreeMap<u32, String>,
}

/// A text of which parts are known only by their shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Permit(u32),
    Request,
    Thread,
}

/// A placeholder at the start of a text.
enum Token {
    Now,
    Client(String),
    Part(Part),
}

impl Names {
    pub(crate) fn new(clients: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut clients: Vec<_> = clients.into_iter().collect();
        clients.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { clients }
    }

    /// The text with ids in place of the clients, if nothing else is open in it.
    pub(crate) fn literal(&self, text: &str) -> Option<String> {
        self.pattern(text).literal().map(str::to_owned)
    }

    /// The text as the vectors write it: the id of every client is its placeholder.
    pub(crate) fn contract(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text).into_owned();
        self.clients.iter().fold(text, |text, (name, id)| text.replace(id.as_str(), &format!("${name}")))
    }

    /// The text to send: every placeholder replaced. `now` is known to `raw` steps only.
    pub(crate) fn expand(&self, text: &str, bindings: &Bindings, now: Option<i64>) -> Outcome<String> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            rest = &rest[at..];
            let Some((token, length)) = self.token(rest) else {
                expanded.push('$');
                rest = &rest[1..];
                continue;
            };
            rest = &rest[length..];
            match (token, now) {
                (Token::Client(id), _) => expanded.push_str(&id),
                (Token::Part(Part::Permit(number)), _) => expanded.push_str(bindings.permit(number)?),
                (Token::Now, Some(now)) => {
                    let (offset, length) = offset(rest);
                    rest = &rest[length..];
                    expanded.push_str(&(now + offset).to_string());
                }
                (Token::Now, None) => expanded.push_str("$NOW"),
                (Token::Part(_), _) => return Err(Failure::new(format!("nothing to send for {text:?}"))),
            }
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// Arguments to send: [`expand`](Self::expand) in every text of them, however deep.
    pub(crate) fn expand_all(&self, args: &Map<String, Value>, bindings: &Bindings) -> Outcome<Map<String, Value>> {
        args.iter().map(|(name, value)| Ok((name.clone(), self.expand_value(value, bindings)?))).collect()
    }

    fn expand_value(&self, value: &Value, bindings: &Bindings) -> Outcome<Value> {
        Ok(match value {
            Value::String(text) => Value::String(self.expand(text, bindings, None)?),
            Value::Array(values) => {
                Value::Array(values.iter().map(|value| self.expand_value(value, bindings)).collect::<Outcome<_>>()?)
            }
            Value::Object(map) => Value::Object(self.expand_all(map, bindings)?),
            other => other.clone(),
        })
    }

    /// The text to compare with.
    pub(crate) fn pattern(&self, text: &str) -> Pattern {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (token, length) = match self.token(rest) {
                Some((Token::Part(part), length)) => {
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(part);
                    (String::new(), length)
                }
                Some((Token::Client(id), length)) => (id, length),
                Some((Token::Now, _)) | None => (first.to_string(), first.len_utf8()),
            };
            literal.push_str(&token);
            rest = &rest[length..];
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Pattern(parts)
    }

    /// The placeholder this text begins with, and its length.
    fn token(&self, text: &str) -> Option<(Token, usize)> {
        let word = text.strip_prefix('$')?;
        if word.starts_with("NOW") {
            return Some((Token::Now, 4));
        }
        if word.starts_with("REQ") {
            return Some((Token::Part(Part::Request), 4));
        }
        if let Some(digits) = word.strip_prefix('P') {
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            if let Ok(number) = digits[..length].parse() {
                return Some((Token::Part(Part::Permit(number)), 2 + length));
            }
        }
        if let Some((name, id)) = self.clients.iter().find(|(name, _)| word.starts_with(name.as_str())) {
            return Some((Token::Client(id.clone()), 1 + name.len()));
        }
        word.starts_with('T').then_some((Token::Part(Part::Thread), 2))
    }
}

impl Bindings {
    /// The id in hex digits.
    pub(crate) fn permit(&self, number: u32) -> Outcome<&str> {
        let found = self.permits.get(&number).map(String::as_str);
        found.ok_or_else(|| Failure::new(format!("$P{number} has not appeared yet")))
    }

    /// Whether this id is the numbered one; a number met for the first time takes the id.
    fn takes(&mut self, number: u32, id: &str) -> bool {
        match self.permits.get(&number) {
            Some(known) => known == id,
            None if self.permits.values().any(|known| known == id) => false,
            None => {
                self.permits.insert(number, id.to_owned());
                true
            }
        }
    }
}

impl Pattern {
    /// The text, if all of it is known.
    pub(crate) fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the text fits; permits met for the first time are bound if it does.
    pub(crate) fn matches(&self, text: &[u8], bindings: &mut Bindings) -> bool {
        let mut tried = bindings.clone();
        let fits = matches_parts(&self.0, text, &mut tried);
        if fits {
            *bindings = tried;
        }
        fits
    }

    /// Whether the member of a permit set fits: there a permit is the 16 bytes its digits spell.
    pub(crate) fn matches_raw_permit(&self, member: &[u8], bindings: &mut Bindings) -> bool {
        match self.0.as_slice() {
            [Part::Permit(number)] if member.len() == 16 => {
                let id: String = member.iter().map(|byte| format!("{byte:02x}")).collect();
                bindings.takes(*number, &id)
            }
            [Part::Permit(_)] => false,
            _ => self.matches(member, bindings),
        }
    }
}

/// Members of this key are permits in raw bytes.
pub(crate) fn holds_raw_permits(key: &str) -> bool {
    key.ends_with(":timeout")
}

/// The bytes 32 hex digits spell.
pub(crate) fn permit_bytes(id: &str) -> Option<Vec<u8>> {
    if id.len() != 32 || !id.is_ascii() {
        return None;
    }
    (0..16).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).ok()).collect()
}

/// A signed number at the start of the text, and its length; none is 0.
fn offset(text: &str) -> (i64, usize) {
    let Some(digits) = text.strip_prefix(['+', '-']) else { return (0, 0) };
    let length = 1 + digits.bytes().take_while(u8::is_ascii_digit).count();
    text[..length].parse().map_or((0, 0), |number| (number, length))
}

fn matches_parts(parts: &[Part], text: &[u8], bindings: &mut Bindings) -> bool {
    let Some((part, parts)) = parts.split_first() else { return text.is_empty() };
    match part {
        Part::Text(literal) => {
            text.strip_prefix(literal.as_bytes()).is_some_and(|rest| matches_parts(parts, rest, bindings))
        }
        Part::Request => hex_digits(text).is_some_and(|(_, rest)| matches_parts(parts, rest, bindings)),
        Part::Permit(number) => hex_digits(text)
            .is_some_and(|(id, rest)| bindings.takes(*number, id) && matches_parts(parts, rest, bindings)),
        Part::Thread => {
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (1..=digits).rev().any(|length| matches_parts(parts, &text[length..], bindings))
        }
    }
}

/// 32 lower case hex digits at the start of the text, and the rest.
fn hex_digits(text: &[u8]) -> Option<(&str, &[u8])> {
    let (digits, rest) = text.split_at_checked(32)?;
    let lower_hex = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    lower_hex.then(|| std::str::from_utf8(digits).ok().map(|digits| (digits, rest))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";
    const OTHER: &str = "ffeeddccbbaa99887766554433221100";

    fn names() -> Names {
        Names::new([("A", "id-a"), ("B", "id-b"), ("AB", "id-ab")].map(|(name, id)| (name.to_owned(), id.to_owned())))
    }

    fn expand(text: &str, now: Option<i64>) -> String {
        names().expand(text, &Bindings::default(), now).expect("expands")
    }

    #[test]
    fn clients_stand_for_their_ids() {
        assert_eq!(expand("$A:1", None), "id-a:1");
        assert_eq!(expand("x:$B:$A:2", None), "x:id-b:id-a:2");
        assert_eq!(expand("$AB:1", None), "id-ab:1");
        assert_eq!(names().pattern("q:{n}:$B:1").literal(), Some("q:{n}:id-b:1"));
    }

    #[test]
    fn ids_are_written_as_clients_again() {
        for text in ["$A:1", "{q}:$AB:1:rwlock_timeout:1", "x:$B:$A:2", "nobody"] {
            assert_eq!(names().contract(expand(text, None).as_bytes()), text);
        }
    }

    #[test]
    fn now_stands_for_the_clock_in_raw_steps_only() {
        assert_eq!(expand("$NOW-2000", Some(5_000)), "3000");
        assert_eq!(expand("$NOW+60000", Some(5_000)), "65000");
        assert_eq!(expand("a$NOW", Some(5_000)), "a5000");
        assert_eq!(expand("$NOW+1", None), "$NOW+1");
    }

    #[test]
    fn a_dollar_that_is_no_placeholder_stays() {
        assert_eq!(expand("price$5$", None), "price$5$");
        assert_eq!(names().pattern("price$5$").literal(), Some("price$5$"));
    }

    #[test]
    fn placeholders_are_replaced_deep_inside_arguments() {
        let args = serde_json::json!({"members": [{"key": "$A"}], "n": 1});
        let expanded = names().expand_all(args.as_object().expect("object"), &Bindings::default()).expect("expands");
        assert_eq!(Value::Object(expanded), serde_json::json!({"members": [{"key": "id-a"}], "n": 1}));
    }

    #[test]
    fn a_permit_is_bound_where_it_first_appears() {
        let mut bindings = Bindings::default();
        assert!(names().expand("$P1", &bindings, None).is_err());
        assert!(names().pattern("$P1").matches(ID.as_bytes(), &mut bindings));
        assert_eq!(names().expand("$P1", &bindings, None).expect("bound"), ID);
        assert!(!names().pattern("$P1").matches(OTHER.as_bytes(), &mut bindings));
        assert!(!names().pattern("$P2").matches(ID.as_bytes(), &mut bindings));
        assert!(names().pattern("[$P1, $P2]").matches(format!("[{ID}, {OTHER}]").as_bytes(), &mut bindings));
    }

    #[test]
    fn a_text_that_does_not_fit_binds_nothing() {
        let mut bindings = Bindings::default();
        assert!(!names().pattern("$P1!").matches(ID.as_bytes(), &mut bindings));
        assert_eq!(bindings, Bindings::default());
    }

    #[test]
    fn a_permit_is_raw_bytes_in_its_sorted_set() {
        let mut bindings = Bindings::default();
        let raw = permit_bytes(ID).expect("hex");
        assert!(names().pattern("$P1").matches_raw_permit(&raw, &mut bindings));
        assert_eq!(bindings.permit(1).expect("bound"), ID);
        assert!(!names().pattern("$P1").matches_raw_permit(ID.as_bytes(), &mut bindings));
        assert!(holds_raw_permits("{p}:timeout"));
    }

    #[test]
    fn requests_and_threads_are_known_by_their_shape() {
        let mut bindings = Bindings::default();
        assert!(names().pattern("latch:$REQ").matches(format!("latch:{ID}").as_bytes(), &mut bindings));
        assert!(!names().pattern("latch:$REQ").matches(b"latch:1234", &mut bindings));
        assert!(names().pattern("thread $T1").matches(b"thread 4711", &mut bindings));
        assert!(!names().pattern("thread $T").matches(b"thread x", &mut bindings));
    }
}
