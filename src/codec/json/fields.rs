//! Reads the fields of a Go struct from a JSON value. `null`, repeated fields and wrong types have the same effect as
//! in Go.
//!
//! As in Go's decoder, a value of the wrong type does not stop the decoding. The reader records only the first wrong
//! type. A time that cannot be parsed stops the decoding. The error about the time replaces an earlier error about a
//! wrong type.
//!
//! If the body repeats a field, the argument `into` of a method already has the earlier value.

use super::syntax::first_unfit_number;
use super::tape::{Elements, Members, Value};
use crate::codec::gathered::Gathered;
use crate::codec::warnings::{Complaint, FieldWarnings};
use crate::go::json::push_string;
use crate::timestamp::{Time, is_zero_time, parse_time};
use compact_str::CompactString;
use simd_json::StaticNode;
use std::borrow::Cow;
use std::str::FromStr;

/// A field of a Go struct of the API, with the names that Go's error messages use.
pub(super) struct Field {
    /// Path of the field from the root of the object, separated by dots.
    path: &'static str,
    /// Go type of the field.
    go_type: &'static str,
    /// Bit of the field in [`Scope::seen`]: unique within the struct, and below 32.
    index: u32,
}

impl Field {
    pub(super) const fn new(index: u32, path: &'static str, go_type: &'static str) -> Self {
        assert!(index < 32);
        Self { path, go_type, index }
    }
}

/// A JSON object whose members the reader reads into a Go struct.
pub(super) struct Scope {
    go_struct: &'static str,
    place: Place,
    /// One bit for each field of the struct. The reader sets the bit once it has read the field.
    seen: u32,
}

/// Path of the JSON object, as errors of strict decoding show it.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Root,
    At(&'static str),
    Element(&'static str, usize),
}

impl Scope {
    pub(super) const fn new(go_struct: &'static str, place: Place) -> Self {
        Self { go_struct, place, seen: 0 }
    }

    fn path_of(&self, key: &str) -> String {
        match self.place {
            Place::Root => key.to_owned(),
            Place::At(parent) => format!("{parent}.{key}"),
            Place::Element(parent, index) => format!("{parent}[{index}].{key}"),
        }
    }
}

/// Pairs of strings in the order of the body. At the end of the body, they become a
/// [`StringMap`](crate::lease::StringMap).
pub(super) type Pairs<'i> = Gathered<(&'i str, &'i str)>;

/// Reads the fields of an object, and collects errors and complaints of strict decoding.
#[derive(Default)]
pub(super) struct FieldReader {
    warnings: FieldWarnings,
    first_type_error: Option<TypeError>,
    /// Scratch memory for [`FieldReader::json_text`].
    json: Vec<u8>,
}

impl FieldReader {
    /// Ends the decoding of `text`, and returns the complaints. Do not call this function after an error that stopped
    /// the decoding.
    ///
    /// # Errors
    /// Go's message for the first wrong type.
    pub(super) fn finish(self, text: &[u8]) -> Result<FieldWarnings, String> {
        match self.first_type_error {
            None => Ok(self.warnings),
            Some(TypeError::Other(words)) => Err(words),
            Some(TypeError::Number { go_struct, path, go_type, fits }) => {
                let number = first_unfit_number(text, path, fits).unwrap_or_default();
                Err(format!(
                    "json: cannot unmarshal number {number} into Go struct field {go_struct}.{path} of type {go_type}"
                ))
            }
        }
    }

    pub(super) fn unknown(&mut self, scope: &Scope, key: &str) {
        self.warnings.report(Complaint::Unknown, || scope.path_of(key));
    }

    /// Marks a field as read, so that a repetition is reported. Ignores the value of the field.
    pub(super) fn skip(&mut self, scope: &mut Scope, field: &Field) {
        self.note(scope, field);
    }

    /// Reads a string that is not a pointer in Go: `null` leaves the earlier value unchanged.
    #[inline]
    pub(super) fn text(&mut self, scope: &mut Scope, field: &Field, value: Value<'_, '_>, into: &mut CompactString) {
        self.note(scope, field);
        match value {
            Value::String(text) => *into = CompactString::new(text),
            Value::Null => {}
            other => self.wrong_type(scope, field, &other),
        }
    }

    /// Reads a string that is a pointer in Go: `null` removes the earlier value.
    #[inline]
    pub(super) fn optional_text(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'_, '_>,
        into: &mut Option<CompactString>,
    ) {
        self.note(scope, field);
        match value {
            Value::String(text) => *into = Some(CompactString::new(text)),
            Value::Null => *into = None,
            other => self.wrong_type(scope, field, &other),
        }
    }

    /// Reads a boolean that is a pointer in Go: `null` removes the earlier value.
    pub(super) fn optional_bool(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'_, '_>,
        into: &mut Option<bool>,
    ) {
        self.note(scope, field);
        match value {
            Value::Bool(b) => *into = Some(b),
            Value::Null => *into = None,
            other => self.wrong_type(scope, field, &other),
        }
    }

    /// Reads an integer that is not a pointer in Go: `null` leaves the earlier value unchanged.
    pub(super) fn integer<T: FromNumber>(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'_, '_>,
        into: &mut T,
    ) {
        let mut found = None;
        self.optional_integer(scope, field, value, &mut found);
        if let Some(n) = found {
            *into = n;
        }
    }

    /// Reads an integer that is a pointer in Go: `null` removes the earlier value.
    #[inline]
    pub(super) fn optional_integer<T: FromNumber>(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'_, '_>,
        into: &mut Option<T>,
    ) {
        self.note(scope, field);
        match value {
            Value::Null => *into = None,
            Value::Number(number) => match T::from_number(number) {
                Some(n) => *into = Some(n),
                None => self.wrong_number::<T>(scope, field),
            },
            other => self.wrong_type(scope, field, &other),
        }
    }

    /// Reads a time that is a pointer in Go: `null` removes the earlier value.
    #[inline]
    pub(super) fn time<T>(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'_, '_>,
        into: &mut Option<T>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<(), String> {
        self.note(scope, field);
        *into = match value {
            Value::String(text) => Some(parse(text)?),
            Value::Null => None,
            other => return Err(type_error(scope, field, other.go_description(), "string")),
        };
        Ok(())
    }

    /// Reads a `metav1.Time` that is not a pointer in Go. So Go's zero time means that the time is absent.
    pub(super) fn plain_time(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'_, '_>,
        into: &mut Option<Time>,
    ) -> Result<(), String> {
        self.time(scope, field, value, into, parse_time)?;
        *into = into.filter(|time| !is_zero_time(*time));
        Ok(())
    }

    /// Returns the members of a nested struct; `None` for `null` or a wrong type. If the struct is a pointer in Go, the
    /// caller handles `null` itself, before this call.
    #[inline]
    pub(super) fn object<'t, 'i>(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'t, 'i>,
    ) -> Option<Members<'t, 'i>> {
        self.note(scope, field);
        match value {
            Value::Object(members) => Some(members),
            Value::Null => None,
            other => {
                self.wrong_type(scope, field, &other);
                None
            }
        }
    }

    /// Returns the elements of a slice. Returns an empty slice for `null`, and `None` for a wrong type.
    pub(super) fn array<'t, 'i>(
        &mut self,
        scope: &mut Scope,
        field: &Field,
        value: Value<'t, 'i>,
    ) -> Option<Elements<'t, 'i>> {
        self.note(scope, field);
        match value {
            Value::Array(elements) => Some(elements),
            Value::Null => Some(Elements::default()),
            other => {
                self.wrong_type(scope, field, &other);
                None
            }
        }
    }

    /// Reads an element of a slice of strings. `null` is read as an empty string.
    pub(super) fn text_element(&mut self, scope: &mut Scope, field: &Field, element: Value<'_, '_>) -> CompactString {
        match element {
            Value::String(found) => return CompactString::new(found),
            Value::Null => {}
            other => self.wrong_element(scope, field, &other, "string"),
        }
        CompactString::default()
    }

    /// Reads a map of strings. `null` in place of the map removes all pairs. `null` as the value of a key is read as an
    /// empty string. If the field is repeated, the maps of all its occurrences are merged, as in Go.
    pub(super) fn pairs<'i>(&mut self, scope: &mut Scope, field: &Field, value: Value<'_, 'i>, into: &mut Pairs<'i>) {
        self.note(scope, field);
        let members = match value {
            Value::Object(members) => members,
            Value::Null => return into.clear(),
            other => return self.wrong_type(scope, field, &other),
        };
        let start = into.kept().len();
        for (key, value) in members {
            match value {
                Value::String(text) => into.push((key, text)),
                Value::Null => into.push((key, "")),
                other => self.wrong_element(scope, field, &other, "string"),
            }
        }
        let added = into.kept().get(start..).unwrap_or_default();
        if !added.is_sorted_by(|a, b| a.0 < b.0) {
            self.report_duplicate_keys(field, added);
        }
    }

    /// Reports the repeated keys of a map. Sorts the keys first: a comparison of each key with each other key would
    /// take too long for a map of megabytes.
    #[cold]
    fn report_duplicate_keys(&mut self, field: &Field, pairs: &[(&str, &str)]) {
        let mut by_key: Vec<(&str, usize)> = pairs.iter().enumerate().map(|(at, (key, _))| (*key, at)).collect();
        by_key.sort_unstable();
        let mut repeated: Vec<(usize, &str)> =
            by_key.windows(2).filter(|w| w[0].0 == w[1].0).map(|w| (w[1].1, w[1].0)).collect();
        repeated.sort_unstable();
        for (_, key) in repeated {
            self.warnings.report(Complaint::Duplicate, || format!("{}.{key}", field.path));
        }
    }

    /// Returns a value of `fieldsV1` as compact JSON. In valid `fieldsV1`, all values are objects. So the result keeps
    /// only objects, up to [`JSON_DEPTH_MAX`] levels, and `null`. `0` replaces any other value.
    pub(super) fn json_text(&mut self, value: Value<'_, '_>) -> Cow<'_, str> {
        self.json.clear();
        push_objects(&mut self.json, value);
        String::from_utf8_lossy(&self.json)
    }

    /// Marks a field as read. Reports the field as repeated if it was already read.
    #[inline]
    fn note(&mut self, scope: &mut Scope, field: &Field) {
        let bit = 1 << field.index;
        if scope.seen & bit != 0 {
            let name = field.path.rsplit('.').next().unwrap_or(field.path);
            self.warnings.report(Complaint::Duplicate, || scope.path_of(name));
        }
        scope.seen |= bit;
    }

    #[cold]
    fn wrong_type(&mut self, scope: &Scope, field: &Field, found: &Value<'_, '_>) {
        self.wrong_element(scope, field, found, field.go_type);
    }

    /// Records a wrong type inside a slice or a map. Go's message contains the name of the field and the type of the
    /// element.
    #[cold]
    pub(super) fn wrong_element(&mut self, scope: &Scope, field: &Field, found: &Value<'_, '_>, go_type: &str) {
        self.first_type_error
            .get_or_insert_with(|| TypeError::Other(type_error(scope, field, found.go_description(), go_type)));
    }

    /// Records a number that does not fit into the integer type `T` of the field.
    #[cold]
    fn wrong_number<T: FromNumber>(&mut self, scope: &Scope, field: &Field) {
        let (go_struct, path, go_type) = (scope.go_struct, field.path, field.go_type);
        let fits = |number: &str| number.parse::<T>().is_ok();
        self.first_type_error.get_or_insert(TypeError::Number { go_struct, path, go_type, fits });
    }
}

/// A value of the wrong type.
enum TypeError {
    /// A number for which `fits` returns false, since it does not fit into the Go type. Go's message quotes the number
    /// as the client wrote it, but the tape does not have that text. So [`FieldReader::finish`] reads the number in the
    /// body.
    Number { go_struct: &'static str, path: &'static str, go_type: &'static str, fits: fn(&str) -> bool },
    /// Any other wrong type. The string is Go's message.
    Other(String),
}

fn type_error(scope: &Scope, field: &Field, found: &str, go_type: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field {}.{} of type {go_type}", scope.go_struct, field.path)
}

/// Maximum depth of the objects that [`push_objects`] appends. Valid `fieldsV1` is not deeper.
const JSON_DEPTH_MAX: usize = 64;

/// Appends nested objects as JSON. A value that is neither an object nor `null` becomes `0`.
fn push_objects(out: &mut Vec<u8>, value: Value<'_, '_>) {
    let mut open: Vec<Members<'_, '_>> = Vec::new();
    let mut next = Some(value);
    loop {
        match next.take() {
            Some(Value::Object(members)) if open.len() < JSON_DEPTH_MAX => {
                out.push(b'{');
                open.push(members);
            }
            Some(Value::Null) => out.extend_from_slice(b"null"),
            Some(_) => out.push(b'0'),
            None => {}
        }
        let Some(members) = open.last_mut() else { return };
        match members.next() {
            Some((key, value)) => {
                if !out.ends_with(b"{") {
                    out.push(b',');
                }
                push_string(out, key);
                out.push(b':');
                next = Some(value);
            }
            None => {
                out.push(b'}');
                open.pop();
            }
        }
    }
}

/// An integer type of the API. A JSON number converts to it if the number is in range and has neither a fraction nor an
/// exponent.
pub(super) trait FromNumber: FromStr {
    fn from_number(number: StaticNode) -> Option<Self>;
}

impl<T: TryFrom<i64> + TryFrom<u64> + FromStr> FromNumber for T {
    #[inline]
    fn from_number(number: StaticNode) -> Option<Self> {
        match number {
            StaticNode::I64(n) => n.try_into().ok(),
            StaticNode::U64(n) => n.try_into().ok(),
            StaticNode::F64(_) | StaticNode::Bool(_) | StaticNode::Null => None,
        }
    }
}
