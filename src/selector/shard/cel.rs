//! Parses expressions in CEL, the language of shard selectors.
//!
//! kube-apiserver parses a selector with cel-go, but without cel-go's macros. Then it examines the syntax tree. So this
//! parser accepts any expression, and the module `shard` examines the result. The result contains only the details that
//! this examination reads and that error messages name. The grammar is cel-go's `CEL.g4`. For a syntax error, the
//! message of cel-go's generated parser depends on the alternatives that cel-go tried. For common mistakes, this parser
//! returns the same message. For any other mistake, the message names the token.

use crate::limits::SELECTOR_DEPTH_MAX;

/// A CEL expression, with the details that kube-apiserver's error messages need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    /// A call of a function or an operator. An operator is a function with a name such as `_&&_`, and its operands are
    /// dropped.
    Call {
        /// Name of the function.
        function: String,
        /// Arguments between the parentheses.
        args: Vec<Expr>,
    },
    /// A name, with its leading dot if it has one.
    Ident(String),
    /// `[…]`
    List,
    /// A literal that is not a string. The text is the literal's type in Go.
    Literal(&'static str),
    /// `{…}`
    Map,
    /// Two or more expressions, joined by `||`.
    Or(Vec<Expr>),
    /// Names joined by dots, such as `object.metadata.uid`. If the part before the first dot is not a name, only the
    /// kind of that part is stored ([`Expr::kind`]).
    Select(Result<String, u8>),
    /// `a.b{…}`
    Struct,
    /// A string literal.
    Text(String),
}

impl Expr {
    /// Returns cel-go's number for the kind of the expression (`common/ast`, `ExprKind`).
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Call { .. } | Self::Or(_) => 1,
            Self::Ident(_) => 3,
            Self::List => 4,
            Self::Literal(_) | Self::Text(_) => 5,
            Self::Map => 6,
            Self::Select(_) => 7,
            Self::Struct => 8,
        }
    }

    /// Returns the path if the expression is a path of names. Otherwise returns the kind of the expression as the
    /// error.
    pub(super) fn path(self) -> Result<String, u8> {
        match self {
            Self::Ident(name) => Ok(name),
            Self::Select(path) => path,
            other => Err(other.kind()),
        }
    }

    fn operator(function: &str) -> Self {
        Self::Call { function: function.to_owned(), args: Vec::new() }
    }
}

/// Parses an expression.
///
/// # Errors
/// The message about the first mistake. A syntax error takes precedence over a mistake in a literal or a name.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    let mut parser = Parser { rest: text, token: Token::End, depth: 0, mistake: None };
    parser.advance()?;
    let expr = parser.expr()?;
    if parser.token != Token::End {
        return Err(parser.missing(Token::End, "<EOF>"));
    }
    parser.mistake.map_or(Ok(expr), Err)
}

/// A token. Its text is a slice of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Bytes(&'a str),
    End,
    EscapedIdent(&'a str),
    Float(&'a str),
    Ident(&'a str),
    Int(&'a str),
    /// An operator, a bracket, or a keyword.
    Sign(&'a str),
    Text(&'a str),
    Uint(&'a str),
}

/// All signs. The search takes the first match, so a longer sign precedes a shorter one with the same beginning.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%",
];

/// Binary operators except `||`, with the names of their functions. The groups are in the order of precedence, the
/// lowest first.
const OPERATORS: [&[(&str, &str)]; 4] = [
    &[("&&", "_&&_")],
    &[("==", "_==_"), ("!=", "_!=_"), ("<", "_<_"), ("<=", "_<=_"), (">", "_>_"), (">=", "_>=_"), ("in", "@in")],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// Reserved words, which cannot be the name of a variable or a function (cel-go `parser`, `reservedIds`).
const RESERVED: &str =
    "as break const continue else for function if import let loop package namespace return var void while";

/// A recursive-descent parser with one token of lookahead.
struct Parser<'a> {
    /// Source after the current token.
    rest: &'a str,
    token: Token<'a>,
    /// Number of nested expressions that contain the current token.
    depth: usize,
    /// The first mistake that is not a syntax error.
    mistake: Option<String>,
}

impl Parser<'_> {
    fn expr(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > SELECTOR_DEPTH_MAX {
            return Err(format!("expression recursion limit exceeded: {SELECTOR_DEPTH_MAX}"));
        }
        let mut expr = self.or()?;
        if self.takes("?")? {
            self.or()?;
            self.wants(":")?;
            self.expr()?;
            expr = Expr::operator("_?_:_");
        }
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr, String> {
        let first = self.binary(0)?;
        if self.token != Token::Sign("||") {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.takes("||")? {
            terms.push(self.binary(0)?);
        }
        Ok(Expr::Or(terms))
    }

    fn binary(&mut self, precedence: usize) -> Result<Expr, String> {
        let Some(operators) = OPERATORS.get(precedence) else { return self.unary() };
        let mut expr = self.binary(precedence + 1)?;
        while let Token::Sign(sign) = self.token
            && let Some((_, function)) = operators.iter().find(|(operator, _)| *operator == sign)
        {
            self.advance()?;
            self.binary(precedence + 1)?;
            expr = Expr::operator(function);
        }
        Ok(expr)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            while !(count == 0 && self.is_at_negative()) && self.takes(sign)? {
                count += 1;
            }
            if count == 0 {
                continue;
            }
            let expr = self.member()?;
            return Ok(if count % 2 == 0 { expr } else { Expr::operator(function) });
        }
        self.member()
    }

    /// Whether the current token is the minus sign of a number. In cel-go, such a sign belongs to the literal.
    fn is_at_negative(&self) -> bool {
        let is_number = |token| matches!(token, Token::Float(_) | Token::Int(_));
        self.token == Token::Sign("-") && token(skipped(self.rest)).is_some_and(|(token, _)| is_number(token))
    }

    fn member(&mut self) -> Result<Expr, String> {
        // `{…}`, the fields of a message, may come only after a path of names.
        let mut are_names = matches!(self.token, Token::Ident(_) | Token::Sign("."));
        let mut expr = self.primary()?;
        loop {
            if self.takes(".")? {
                self.refuse_optional(".?")?;
                let (Token::Ident(name) | Token::EscapedIdent(name)) = self.token else {
                    return Err(self.unexpected("IDENTIFIER"));
                };
                let is_plain = matches!(self.token, Token::Ident(_));
                are_names &= is_plain;
                self.advance()?;
                expr = if is_plain && self.takes("(")? {
                    Expr::Call { function: name.to_owned(), args: self.list(")", Self::expr)? }
                } else {
                    let path = expr.path().map(|mut path| {
                        path.push('.');
                        path.push_str(name);
                        path
                    });
                    Expr::Select(path)
                };
            } else if self.takes("[")? {
                self.refuse_optional("[?")?;
                self.expr()?;
                self.wants("]")?;
                expr = Expr::operator("_[_]");
            } else if are_names && matches!(expr, Expr::Ident(_) | Expr::Select(Ok(_))) && self.takes("{")? {
                self.list("}", |parser| {
                    match parser.token {
                        Token::Ident(_) | Token::EscapedIdent(_) => parser.advance()?,
                        _ => return Err(parser.unexpected("IDENTIFIER")),
                    }
                    parser.wants(":")?;
                    parser.expr()
                })?;
                expr = Expr::Struct;
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let prefix = if self.is_at_negative() { "-" } else { "" };
        if !prefix.is_empty() {
            self.advance()?;
        }
        let token = self.token;
        let leading_dot = self.takes(".")?;
        if let Token::Ident(name) = self.token {
            self.advance()?;
            if RESERVED.split(' ').any(|word| word == name) {
                self.mistake(format!("reserved identifier: {name}"));
            }
            let name = if leading_dot { format!(".{name}") } else { name.to_owned() };
            return Ok(if self.takes("(")? {
                Expr::Call { function: name, args: self.list(")", Self::expr)? }
            } else {
                Expr::Ident(name)
            });
        }
        if leading_dot {
            return Err(self.unexpected("IDENTIFIER"));
        }
        self.advance()?;
        let literal = |parser: &mut Self, is_valid: bool, go_type, name: &str| {
            if !is_valid {
                parser.mistake(format!("invalid {name} literal"));
            }
            Expr::Literal(go_type)
        };
        Ok(match token {
            Token::Sign("(") => {
                let expr = self.expr()?;
                self.wants(")")?;
                expr
            }
            Token::Sign("[") => {
                self.list("]", Self::expr)?;
                Expr::List
            }
            Token::Sign("{") => {
                self.list("}", |parser| {
                    parser.expr()?;
                    parser.wants(":")?;
                    parser.expr()
                })?;
                Expr::Map
            }
            Token::Sign("true" | "false") => Expr::Literal("bool"),
            Token::Sign("null") => Expr::Literal("structpb.NullValue"),
            Token::Int(digits) => {
                let is_valid = match digits.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(&format!("{prefix}{hex}"), 16).is_ok(),
                    None => format!("{prefix}{digits}").parse::<i64>().is_ok(),
                };
                literal(self, is_valid, "int64", "int")
            }
            Token::Uint(digits) => {
                let digits = &digits[..digits.len() - 1];
                let is_valid = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).is_ok(),
                    None => digits.parse::<u64>().is_ok(),
                };
                literal(self, is_valid, "uint64", "uint")
            }
            Token::Float(digits) => literal(self, digits.parse::<f64>().is_ok_and(f64::is_finite), "float64", "double"),
            Token::Bytes(_) => Expr::Literal("[]uint8"),
            Token::Text(quoted) => Expr::Text(unquoted(quoted).unwrap_or_else(|message| {
                self.mistake(message.to_owned());
                String::new()
            })),
            Token::Sign(_) | Token::End | Token::EscapedIdent(_) | Token::Ident(_) => {
                return Err(unexpected(token, EXPRESSION));
            }
        })
    }

    /// Parses expressions separated by commas, and consumes the closing bracket after them.
    fn list(
        &mut self,
        close: &'static str,
        mut element: impl FnMut(&mut Self) -> Result<Expr, String>,
    ) -> Result<Vec<Expr>, String> {
        // A comma may follow the last element of a list, but not the last argument of a function.
        let (may_trail, mut elements) = (close != ")", Vec::new());
        while !self.takes(close)? {
            let is_first = elements.is_empty();
            if !is_first || may_trail && self.token == Token::Sign(",") {
                let expected = if may_trail { format!("{{'{close}', ','}}") } else { format!("'{close}'") };
                if !self.takes(",")? {
                    return Err(self.missing(Token::Sign(close), &expected));
                }
                if may_trail && self.takes(close)? {
                    break;
                }
                if is_first {
                    return Err(self.unexpected(EXPRESSION));
                }
            }
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    fn refuse_optional(&mut self, syntax: &str) -> Result<(), String> {
        if self.takes("?")? {
            self.mistake(format!("unsupported syntax '{syntax}'"));
        }
        Ok(())
    }

    fn takes(&mut self, sign: &str) -> Result<bool, String> {
        let is_it = self.token == Token::Sign(sign);
        if is_it {
            self.advance()?;
        }
        Ok(is_it)
    }

    fn wants(&mut self, sign: &'static str) -> Result<(), String> {
        if self.takes(sign)? { Ok(()) } else { Err(self.missing(Token::Sign(sign), &format!("'{sign}'"))) }
    }

    fn mistake(&mut self, message: String) {
        self.mistake.get_or_insert(message);
    }

    fn unexpected(&self, expected: &str) -> String {
        unexpected(self.token, expected)
    }

    /// Returns the error for a current token that is not `wanted`. `expected` is the text for `wanted` in the message.
    fn missing(&self, wanted: Token<'_>, expected: &str) -> String {
        match (self.token, token(skipped(self.rest))) {
            (Token::End, _) if expected.len() == 3 => format!("Syntax error: missing {expected} at '<EOF>'"),
            (surplus, Some((next, _))) if next == wanted => {
                format!("Syntax error: extraneous input '{}' expecting {expected}", surplus.text())
            }
            _ => self.unexpected(expected),
        }
    }

    /// Consumes the current token, and parses the next one.
    fn advance(&mut self) -> Result<(), String> {
        self.rest = skipped(self.rest);
        let (token, len) = token(self.rest).ok_or_else(|| {
            let first: String = self.rest.chars().take(1).collect();
            format!("Syntax error: token recognition error at: '{first}'")
        })?;
        self.token = token;
        self.rest = &self.rest[len..];
        Ok(())
    }
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Self::End => "<EOF>",
            Self::EscapedIdent(text) | Self::Ident(text) | Self::Int(text) | Self::Sign(text) => text,
            Self::Bytes(text) | Self::Float(text) | Self::Text(text) | Self::Uint(text) => text,
        }
    }
}

fn unexpected(token: Token<'_>, expected: &str) -> String {
    format!("Syntax error: mismatched input '{}' expecting {expected}", token.text())
}

/// Tokens that can begin an expression, with cel-go's names.
const EXPRESSION: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', \
                          NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Returns `rest` without the blanks and comments at its start.
fn skipped(mut rest: &str) -> &str {
    loop {
        rest = rest.trim_start_matches(['\t', ' ', '\r', '\n', '\u{c}']);
        match rest.strip_prefix("//") {
            Some(comment) => rest = comment.find('\n').map_or("", |end| &comment[end..]),
            None => return rest,
        }
    }
}

/// Returns the first token of `rest`, and its length in bytes.
fn token(rest: &str) -> Option<(Token<'_>, usize)> {
    let Some(first) = rest.bytes().next() else { return Some((Token::End, 0)) };
    let is_bytes = matches!(first, b'b' | b'B');
    if let Some(len) = string_len(&rest[usize::from(is_bytes)..]) {
        let text = &rest[..usize::from(is_bytes) + len];
        return Some((if is_bytes { Token::Bytes(text) } else { Token::Text(text) }, text.len()));
    }
    let word = |is_in: fn(&u8) -> bool| rest.bytes().take_while(is_in).count();
    if first.is_ascii_alphabetic() || first == b'_' {
        let text = &rest[..word(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')];
        let is_sign = matches!(text, "true" | "false" | "null" | "in");
        return Some((if is_sign { Token::Sign(text) } else { Token::Ident(text) }, text.len()));
    }
    if let Some(escaped) = rest.strip_prefix('`') {
        let end = escaped.find('`')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(&byte);
        let name = &escaped[..end];
        return (end > 0 && name.bytes().all(is_name)).then_some((Token::EscapedIdent(name), end + 2));
    }
    number(rest).or_else(|| {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
        Some((Token::Sign(&rest[..sign.len()]), sign.len()))
    })
}

/// Returns the number at the start of `rest`, and its length in bytes.
fn number(rest: &str) -> Option<(Token<'_>, usize)> {
    let digits = |from: usize| rest.bytes().skip(from).take_while(u8::is_ascii_digit).count();
    let with_unit = |len: usize| match rest.as_bytes().get(len) {
        Some(b'u' | b'U') => (Token::Uint(&rest[..=len]), len + 1),
        _ => (Token::Int(&rest[..len]), len),
    };
    if rest.starts_with("0x") {
        let hex = rest.bytes().skip(2).take_while(u8::is_ascii_hexdigit).count();
        if hex > 0 {
            return Some(with_unit(2 + hex));
        }
    }
    let whole = digits(0);
    let mut len = whole;
    if rest[len..].starts_with('.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if len > 0 && rest[len..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[len + 1..].starts_with(['+', '-']));
        let exponent = digits(len + 1 + sign);
        len += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    match (whole, len) {
        (_, 0) => None,
        (whole, len) if len > whole => Some((Token::Float(&rest[..len]), len)),
        _ => Some(with_unit(len)),
    }
}

/// Returns the length of the string literal at the start of `text`, including its quotes, in bytes. Returns `None` if
/// the closing quote is missing.
fn string_len(text: &str) -> Option<usize> {
    let is_raw = text.starts_with(['r', 'R']);
    let body = &text[usize::from(is_raw)..];
    let quote = body.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let triple = [quote; 3].iter().collect::<String>();
    let (close, is_long) = if body.starts_with(&triple) && body[3..].contains(&triple) {
        (triple.as_str(), true)
    } else {
        (&triple[..1], false)
    };
    let mut at = close.len();
    while !body[at..].starts_with(close) {
        let next = body[at..].chars().next().filter(|next| is_long || !matches!(next, '\n' | '\r'))?;
        at += next.len_utf8();
        if next == '\\' && !is_raw {
            at += escape(&body[at..])?.1;
        }
    }
    Some(usize::from(is_raw) + at + close.len())
}

/// Returns the value of a string literal.
///
/// # Errors
/// cel-go's message for an escape sequence that is not a valid character.
fn unquoted(literal: &str) -> Result<String, &'static str> {
    let literal = literal.replace("\r\n", "\n").replace('\r', "\n");
    let body = literal.trim_start_matches(['r', 'R']);
    let is_long = body.len() >= 6 && (body.starts_with("'''") || body.starts_with("\"\"\""));
    let quotes = if is_long { 3 } else { 1 };
    let mut rest = body.get(quotes..body.len().saturating_sub(quotes)).unwrap_or_default();
    if body.len() < literal.len() {
        return Ok(rest.to_owned());
    }
    let mut text = String::with_capacity(rest.len());
    while let Some((before, behind)) = rest.split_once('\\') {
        let (code, len) = escape(behind).unwrap_or_default();
        text.push_str(before);
        text.push(char::from_u32(code).ok_or("invalid unicode code point")?);
        rest = &behind[len..];
    }
    text.push_str(rest);
    Ok(text)
}

/// Returns the code point of an escape sequence, and the length of the sequence without its backslash, in bytes.
fn escape(text: &str) -> Option<(u32, usize)> {
    let first = text.chars().next()?;
    let (radix, digits) = match first {
        'x' | 'X' => (16, 1..3),
        'u' => (16, 1..5),
        'U' => (16, 1..9),
        '0'..='3' => (8, 0..3),
        'a' => return Some((0x07, 1)),
        'b' => return Some((0x08, 1)),
        't' => return Some((0x09, 1)),
        'n' => return Some((0x0a, 1)),
        'v' => return Some((0x0b, 1)),
        'f' => return Some((0x0c, 1)),
        'r' => return Some((0x0d, 1)),
        '\\' | '\'' | '"' | '`' | '?' => return Some((first.into(), 1)),
        _ => return None,
    };
    let number = text.get(digits.clone()).filter(|number| number.chars().all(|digit| digit.is_digit(radix)))?;
    Some((u32::from_str_radix(number, radix).ok()?, digits.end))
}
