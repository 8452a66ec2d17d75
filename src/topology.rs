//! Where keys live and how their channels are spoken: the seam behind which one node, sentinels or a cluster stand.
//!
//! Layers above ask for the connection of a key, for what may share a script call, and for the flavours of pub/sub. Today
//! there is one node, which has every key and speaks plain pub/sub.

use crate::{connection::Connection, keys};

/// A node of the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

/// Keys with the same group may share a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Group {
    node: NodeId,
    /// In a cluster the slot; elsewhere all keys of a node are together.
    slot: Option<u16>,
}

/// Which of the two worlds of pub/sub: they do not hear each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Plain,
    #[expect(dead_code, reason = "spoken in clusters, which come behind this seam")]
    Sharded,
}

impl Flavour {
    pub(crate) fn publish(self) -> &'static str {
        match self {
            Self::Plain => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }

    pub(crate) fn subscribe(self) -> &'static str {
        match self {
            Self::Plain => "SUBSCRIBE",
            Self::Sharded => "SSUBSCRIBE",
        }
    }

    pub(crate) fn unsubscribe(self) -> &'static str {
        match self {
            Self::Plain => "UNSUBSCRIBE",
            Self::Sharded => "SUNSUBSCRIBE",
        }
    }
}

/// The nodes and their connections.
pub(crate) struct Topology {
    only: Connection,
    is_cluster: bool,
}

impl Topology {
    pub(crate) fn single(node: Connection) -> Self {
        Self { only: node, is_cluster: false }
    }

    /// The node that has this key.
    pub(crate) fn node_of(&self, _key: &str) -> NodeId {
        NodeId(0)
    }

    pub(crate) fn node(&self, _id: NodeId) -> &Connection {
        &self.only
    }

    /// The connection to the node that has this key.
    pub(crate) fn connection(&self, key: &str) -> &Connection {
        self.node(self.node_of(key))
    }

    /// Which other keys may be in one script call with this one.
    pub(crate) fn group(&self, key: &str) -> Group {
        Group { node: self.node_of(key), slot: self.is_cluster.then(|| keys::slot(key.as_bytes())) }
    }

    /// What scripts publish into, and what waiters listen to.
    pub(crate) fn flavour(&self) -> Flavour {
        Flavour::Plain
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Connection> {
        std::iter::once(&self.only)
    }

    pub(crate) fn close(&self) {
        self.nodes().for_each(Connection::close);
    }
}
