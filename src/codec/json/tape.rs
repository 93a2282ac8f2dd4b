//! Reads simd-json's tape, which is a flat list of nodes. An object is a header node, and then its keys and values in
//! turn. The header node contains the number of nodes in the object. So the reader skips a value of any depth in one
//! step, without recursion.
//!
//! The tape has the keys in the order of the body, including repeated keys. So the search for repeated fields finds
//! them, and reports them in the order of the body.

use simd_json::{Node, StaticNode};

/// A JSON value. The tape contains its nested values, which are not read yet.
#[derive(Clone, Copy)]
pub(super) enum Value<'t, 'i> {
    Null,
    Bool(bool),
    /// A number. The node is never `Bool` or `Null`.
    Number(StaticNode),
    String(&'i str),
    Array(Elements<'t, 'i>),
    Object(Members<'t, 'i>),
}

impl<'t, 'i> Value<'t, 'i> {
    /// Returns the root value of a tape.
    pub(super) fn first(nodes: &'t [Node<'i>]) -> Option<Self> {
        let mut rest = nodes;
        take(&mut rest)
    }

    /// Returns the name that Go's `UnmarshalTypeError` uses for the type of this value.
    pub(super) fn go_description(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }
}

/// The elements of an array.
#[derive(Clone, Copy, Default)]
pub(super) struct Elements<'t, 'i>(&'t [Node<'i>]);

impl<'t, 'i> Iterator for Elements<'t, 'i> {
    type Item = Value<'t, 'i>;

    fn next(&mut self) -> Option<Self::Item> {
        take(&mut self.0)
    }
}

/// The members of an object.
#[derive(Clone, Copy)]
pub(super) struct Members<'t, 'i>(&'t [Node<'i>]);

impl<'t, 'i> Iterator for Members<'t, 'i> {
    type Item = (&'i str, Value<'t, 'i>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (Node::String(key), rest) = self.0.split_first()? else { return None };
        self.0 = rest;
        Some((key, take(&mut self.0)?))
    }
}

/// Removes the first value from the start of `nodes`, and returns it.
#[inline]
fn take<'t, 'i>(nodes: &mut &'t [Node<'i>]) -> Option<Value<'t, 'i>> {
    let (head, rest) = nodes.split_first()?;
    let nested = match head {
        Node::Object { count, .. } | Node::Array { count, .. } => *count,
        Node::String(_) | Node::Static(_) => 0,
    };
    let (body, rest) = rest.split_at_checked(nested)?;
    *nodes = rest;
    Some(match *head {
        Node::Object { .. } => Value::Object(Members(body)),
        Node::Array { .. } => Value::Array(Elements(body)),
        Node::String(text) => Value::String(text),
        Node::Static(StaticNode::Null) => Value::Null,
        Node::Static(StaticNode::Bool(b)) => Value::Bool(b),
        Node::Static(number) => Value::Number(number),
    })
}
