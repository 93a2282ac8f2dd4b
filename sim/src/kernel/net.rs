//! The simulated network: data on a connection arrives later, in order, in pieces, or never.

use super::{Event, Sim, TaskId};

/// Number of a connection, in the order in which connections were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub usize);

/// Data that arrives at one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// Bytes of the stream.
    Bytes(Vec<u8>),
    /// The end of the stream: the other side has closed the connection.
    End,
}

/// All connections of a run.
#[derive(Debug, Default)]
pub struct Net {
    links: Vec<Link>,
}

/// A connection between a client and a server.
#[derive(Debug)]
pub struct Link {
    owner: TaskId,
    /// Index of the machine to whose server the connection leads.
    pub node: usize,
    /// Number of the server's start that has accepted the connection; `None` before any data has arrived at the server.
    pub epoch: Option<u64>,
    /// Arrival time of the last data to the server, in microseconds since the start of the run. Later data must not
    /// arrive earlier.
    to_server_us: u64,
    /// Arrival time of the last data to the client, in microseconds since the start of the run. Later data must not
    /// arrive earlier.
    to_client_us: u64,
    /// Bytes that have arrived at the client and that the client has not read yet.
    inbox: Vec<u8>,
    /// Number of bytes that were sent to the client and that the client has not read yet.
    unread: usize,
    /// Maximum number of unread bytes: the client's receive window.
    window: usize,
    /// Whether the end of the stream has arrived at the client. After the inbox, the client receives no more data.
    pub is_ended: bool,
    /// Whether the client has closed the connection, or a fault has cut it. Data in transit is then lost.
    pub is_gone: bool,
    /// Whether the server's process that had accepted the connection has ended.
    is_lost: bool,
}

impl Sim {
    /// Opens a connection of a client to a server. If no server runs, the client learns this only after its first send:
    /// the stream ends.
    pub fn open(&self, owner: TaskId, node: usize, window: usize) -> LinkId {
        let mut net = self.net.borrow_mut();
        net.links.push(Link {
            owner,
            node,
            epoch: None,
            to_server_us: 0,
            to_client_us: 0,
            inbox: Vec::new(),
            unread: 0,
            window,
            is_ended: false,
            is_gone: false,
            is_lost: false,
        });
        LinkId(net.links.len() - 1)
    }

    /// Sends bytes to the server. If the run cuts requests, some sends arrive in two pieces.
    pub fn send_to_server(&self, link: LinkId, mut bytes: Vec<u8>) {
        if self.swarm.cut_requests && bytes.len() > 1 && self.random(|random| random.u8(..4)) == 0 {
            let rest = bytes.split_off(self.random(|random| random.usize(1..bytes.len())));
            self.to_server(link, Inbound::Bytes(bytes));
            self.to_server(link, Inbound::Bytes(rest));
        } else {
            self.to_server(link, Inbound::Bytes(bytes));
        }
    }

    fn to_server(&self, link: LinkId, what: Inbound) {
        let latency_us = self.latency_us();
        let at_us = {
            let place = &mut self.net.borrow_mut().links[link.0];
            place.to_server_us = place.to_server_us.max(self.now_us() + latency_us);
            place.to_server_us
        };
        self.schedule_at(at_us, Event::ToServer(link, what));
    }

    /// Sends bytes or the end of the stream to the client.
    pub fn send_to_client(&self, link: LinkId, what: Inbound) {
        let latency_us = self.latency_us();
        let at_us = {
            let place = &mut self.net.borrow_mut().links[link.0];
            if let Inbound::Bytes(bytes) = &what {
                place.unread += bytes.len();
            }
            place.to_client_us = place.to_client_us.max(self.now_us() + latency_us);
            place.to_client_us
        };
        self.schedule_at(at_us, Event::ToClient(link, what));
    }

    /// Closes the connection from the client's end.
    pub fn hang_up(&self, link: LinkId) {
        let was_gone = std::mem::replace(&mut self.net.borrow_mut().links[link.0].is_gone, true);
        if !was_gone {
            self.to_server(link, Inbound::End);
        }
    }

    fn latency_us(&self) -> u64 {
        let max_us = self.swarm.latency_us_max;
        self.random(|random| {
            // In a run with a slow network, one delivery in 200 may take seconds.
            if self.swarm.has_slow_net && random.u16(..200) == 0 {
                random.u64(..4 * super::SECOND)
            } else {
                random.u64(50..50 + max_us)
            }
        })
    }
}

impl Net {
    /// Stores data that has arrived at the client's end of a connection. Returns the client's task, which must be
    /// woken.
    pub fn arrive(&mut self, link: LinkId, what: Inbound) -> Option<TaskId> {
        let link = &mut self.links[link.0];
        if link.is_gone {
            return None;
        }
        match what {
            Inbound::Bytes(bytes) => link.inbox.extend(bytes),
            Inbound::End => link.is_ended = true,
        }
        Some(link.owner)
    }

    /// Reads all bytes that have arrived at the client. If the receive window was full, the server can now send more.
    /// Then also returns the server to wake: the index of its machine and the number of its start.
    pub fn read(&mut self, link: LinkId) -> (Vec<u8>, Option<(usize, u64)>) {
        let link = &mut self.links[link.0];
        let was_full = link.unread >= link.window;
        let bytes = std::mem::take(&mut link.inbox);
        link.unread -= bytes.len();
        (bytes, link.epoch.filter(|_| was_full).map(|epoch| (link.node, epoch)))
    }

    /// Returns a connection.
    #[must_use]
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.0]
    }

    /// Returns the number of bytes that the server may send now: the rest of the client's receive window.
    #[must_use]
    pub fn room(&self, link: LinkId) -> usize {
        let link = &self.links[link.0];
        link.window.saturating_sub(link.unread)
    }

    /// Records the start of the server that accepts the connection.
    pub fn accept(&mut self, link: LinkId, epoch: u64) {
        self.links[link.0].epoch = Some(epoch);
    }

    /// Finds the open connections that the server of `node` accepted in an earlier start than `epoch`. Marks them as
    /// lost and returns them.
    pub fn of_earlier(&mut self, node: usize, epoch: u64) -> Vec<LinkId> {
        let is_lost = |link: &Link| {
            link.node == node && !link.is_gone && !link.is_lost && link.epoch.is_some_and(|own| own < epoch)
        };
        let lost: Vec<_> =
            self.links.iter().enumerate().filter(|(_, link)| is_lost(link)).map(|(i, _)| LinkId(i)).collect();
        lost.iter().for_each(|link| self.links[link.0].is_lost = true);
        lost
    }

    /// Cuts an open connection in both directions. Data in transit is lost. `choice`, modulo the number of open
    /// connections, selects the connection. Returns the connection and its client's task; `None` if no connection is
    /// open.
    pub fn cut(&mut self, choice: usize) -> Option<(LinkId, TaskId)> {
        let open: Vec<_> = self.links.iter().enumerate().filter(|(_, link)| !link.is_gone && !link.is_ended).collect();
        let (index, link) = open.get(choice.checked_rem(open.len())?)?;
        let (id, owner) = (LinkId(*index), link.owner);
        let link = &mut self.links[id.0];
        (link.is_gone, link.is_ended) = (true, true);
        Some((id, owner))
    }
}
