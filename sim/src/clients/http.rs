//! The HTTP/1.1 code of the clients. It shares no code with the server, so that clients and server cannot share a
//! mistake.

use crate::kernel::{Context, LinkId, Received};
use memchr::memmem;

/// A client's connection to a server, which is opened on first use.
#[derive(Debug)]
pub struct Http {
    /// Maximum number of unread bytes on the connection.
    window: usize,
    link: Option<LinkId>,
    /// Bytes that were received and not parsed yet.
    buffer: Vec<u8>,
    /// Number of bytes of the current chunk, without its end of line; `None` before its size was read.
    chunk_left: Option<usize>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// The request got no response. The server may have served the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// What a watch delivered next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The JSON of one event.
    Event(Vec<u8>),
    /// End of the watch, orderly or not.
    End,
    /// No event arrived in time.
    Nothing,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'r> {
    /// Method.
    pub method: &'r str,
    /// Path and query.
    pub target: &'r str,
    /// Media type of the body.
    pub content_type: &'r str,
    /// Body.
    pub body: &'r str,
}

struct Head {
    status: u16,
    /// Length of the body in bytes; `None` if the body is chunked.
    length: Option<usize>,
    /// Whether the server closes the connection after this response.
    closes: bool,
}

/// Maximum number of unread bytes on a connection whose client reads without delay.
pub const WINDOW: usize = 1 << 24;

impl Http {
    /// Creates a client without a connection, whose connections can have up to `window` unread bytes.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self { window, link: None, buffer: Vec::new(), chunk_left: None }
    }

    /// Sends a request and waits at most `within_us` microseconds for the response.
    ///
    /// # Errors
    /// [`Lost`], if the connection ends or the time is over before the response is complete. The next request then uses
    /// a new connection.
    pub async fn request(
        &mut self,
        context: &Context,
        request: &Request<'_>,
        within_us: u64,
    ) -> Result<Response, Lost> {
        let end_us = context.now_us() + within_us;
        let head = self.send(context, request, end_us).await?;
        self.response(context, head, end_us).await
    }

    /// Receives the body of a response whose head has arrived.
    async fn response(&mut self, context: &Context, head: Head, end_us: u64) -> Result<Response, Lost> {
        let body = match head.length {
            Some(length) => {
                self.fill(context, length, end_us).await?;
                self.buffer.drain(..length).collect()
            }
            None => {
                let mut body = Vec::new();
                while let Some(bytes) = self.chunk(context, end_us).await? {
                    body.extend(bytes);
                }
                body
            }
        };
        if head.closes {
            self.close(context);
        }
        Ok(Response { status: head.status, body })
    }

    /// Starts a watch. If the status of the response is 200, [`Http::line`] returns the events.
    ///
    /// # Errors
    /// [`Lost`], if the connection ends or the time is over before the head of the response has arrived. For a refusal,
    /// the body must have arrived too.
    pub async fn watch(&mut self, context: &Context, target: &str, within_us: u64) -> Result<Response, Lost> {
        let end_us = context.now_us() + within_us;
        let request = Request { method: "GET", target, content_type: "", body: "" };
        let head = self.send(context, &request, end_us).await?;
        if head.length.is_none() {
            return Ok(Response { status: head.status, body: Vec::new() });
        }
        self.response(context, head, end_us).await
    }

    /// Waits for the next event of a watch, until `end_us` at the latest. `partial` stores an event that is incomplete
    /// so far.
    pub async fn line(&mut self, context: &Context, partial: &mut Vec<u8>, end_us: u64) -> Line {
        loop {
            if let Some(end) = memchr::memchr(b'\n', partial) {
                let rest = partial.split_off(end + 1);
                return Line::Event(std::mem::replace(partial, rest));
            }
            match self.chunk_or_nothing(context, end_us).await {
                Ok(Some(bytes)) if bytes.is_empty() => return Line::Nothing,
                Ok(Some(bytes)) => partial.extend(bytes),
                Ok(None) | Err(Lost) => return Line::End,
            }
        }
    }

    /// Closes the connection.
    pub fn close(&mut self, context: &Context) {
        if let Some(link) = self.link.take() {
            context.sim.hang_up(link);
        }
        self.buffer.clear();
        self.chunk_left = None;
    }

    async fn send(&mut self, context: &Context, request: &Request<'_>, end_us: u64) -> Result<Head, Lost> {
        let link = match self.link {
            Some(link) if !context.sim.net.borrow().link(link).is_ended && self.buffer.is_empty() => link,
            _ => {
                self.close(context);
                // In a run with replicas, each connection is opened to a random replica.
                let replicas = context.sim.swarm.replicas;
                let node = if replicas > 1 { context.random(|random| random.usize(..replicas)) } else { 0 };
                context.sim.open(context.id, node, self.window)
            }
        };
        self.link = Some(link);
        let Request { method, target, content_type, body } = request;
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: sim\r\nUser-Agent: {}\r\n", context.name);
        if !body.is_empty() {
            text += &format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        text += body;
        context.sim.send_to_server(link, text.into_bytes());
        loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return parse_head(&head).ok_or(Lost);
            }
            self.fill(context, self.buffer.len() + 1, end_us).await?;
        }
    }

    /// Waits until the buffer contains this number of bytes.
    async fn fill(&mut self, context: &Context, bytes: usize, end_us: u64) -> Result<(), Lost> {
        while self.buffer.len() < bytes {
            if !self.receive(context, end_us).await? {
                self.close(context);
                return Err(Lost);
            }
        }
        Ok(())
    }

    /// Appends the next bytes of the connection to the buffer. Returns whether any arrived in time.
    async fn receive(&mut self, context: &Context, end_us: u64) -> Result<bool, Lost> {
        let Some(link) = self.link else { return Err(Lost) };
        match context.receive(link, end_us).await {
            Received::Bytes(bytes) => self.buffer.extend(bytes),
            Received::Nothing => return Ok(false),
            Received::End => {
                self.close(context);
                return Err(Lost);
            }
        }
        Ok(true)
    }

    /// Returns the next chunk of a body; `None` at the end of the body. Fails if the chunk is not complete in time.
    async fn chunk(&mut self, context: &Context, end_us: u64) -> Result<Option<Vec<u8>>, Lost> {
        match self.chunk_or_nothing(context, end_us).await? {
            Some(bytes) if bytes.is_empty() => {
                self.close(context);
                Err(Lost)
            }
            other => Ok(other),
        }
    }

    /// Returns the next chunk of a body: empty if none was complete in time, `None` at the end of the body.
    async fn chunk_or_nothing(&mut self, context: &Context, end_us: u64) -> Result<Option<Vec<u8>>, Lost> {
        loop {
            if let Some(left) = self.chunk_left {
                if self.buffer.len() >= left + 2 {
                    let mut bytes: Vec<u8> = self.buffer.drain(..left + 2).collect();
                    bytes.truncate(left);
                    self.chunk_left = None;
                    return Ok(if left == 0 { None } else { Some(bytes) });
                }
            } else if let Some(end) = memmem::find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let digits = str::from_utf8(&line).map_err(|_| Lost)?.trim();
                self.chunk_left = Some(usize::from_str_radix(digits, 16).map_err(|_| Lost)?);
                continue;
            }
            if !self.receive(context, end_us).await? {
                return Ok(Some(Vec::new()));
            }
        }
    }
}

fn parse_head(bytes: &[u8]) -> Option<Head> {
    let text = str::from_utf8(bytes).ok()?;
    let mut lines = text.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut head = Head { status, length: None, closes: false };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.parse().ok()?);
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.eq_ignore_ascii_case("close");
        }
    }
    Some(head)
}
