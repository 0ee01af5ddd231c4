//! The fields that we read, with their numbers. They are those of `generated.proto` in Kubernetes, where a number never
//! changes its meaning. What is not listed is passed over by its length.

/// A kind of message: its fields in the order of their numbers.
#[derive(Debug)]
pub(super) struct Message(pub(super) &'static [Field]);

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// How a field is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    Whole,
    /// Seconds and nanoseconds, which JSON has as text without the nanoseconds.
    Time,
    /// Texts by name.
    Texts,
    One(&'static Message),
    Many(&'static Message),
    /// An object of a kind that it tells itself.
    Object,
}

const fn field(number: u64, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind }
}

/// The fields of a kind of object.
pub(super) fn of(kind: &str) -> Option<&'static Message> {
    match kind {
        "Node" => Some(&NODE),
        "NodeList" => Some(&NODE_LIST),
        "Pod" => Some(&POD),
        "PodList" => Some(&POD_LIST),
        "Status" => Some(&STATUS),
        _ => None,
    }
}

/// What a watch is made of.
pub(super) static EVENT: Message = Message(&[field(1, "type", Kind::Text), field(2, "object", Kind::Object)]);

static META: Message = Message(&[
    field(1, "name", Kind::Text),
    field(3, "namespace", Kind::Text),
    field(5, "uid", Kind::Text),
    field(6, "resourceVersion", Kind::Text),
    field(8, "creationTimestamp", Kind::Time),
    field(9, "deletionTimestamp", Kind::Time),
    field(11, "labels", Kind::Texts),
    field(12, "annotations", Kind::Texts),
    field(13, "ownerReferences", Kind::Many(&OWNER)),
]);

static OWNER: Message = Message(&[
    field(1, "kind", Kind::Text),
    field(3, "name", Kind::Text),
    field(4, "uid", Kind::Text),
    field(5, "apiVersion", Kind::Text),
]);

static LIST_META: Message =
    Message(&[field(2, "resourceVersion", Kind::Text), field(3, "continue", Kind::Text)]);

static NODE_LIST: Message =
    Message(&[field(1, "metadata", Kind::One(&LIST_META)), field(2, "items", Kind::Many(&NODE))]);

static NODE: Message = Message(&[
    field(1, "metadata", Kind::One(&META)),
    field(2, "spec", Kind::One(&NODE_SPEC)),
    field(3, "status", Kind::One(&NODE_STATUS)),
]);

static NODE_SPEC: Message = Message(&[field(5, "taints", Kind::Many(&TAINT))]);

/// All its fields: patches test against the whole of it.
static TAINT: Message = Message(&[
    field(1, "key", Kind::Text),
    field(2, "value", Kind::Text),
    field(3, "effect", Kind::Text),
    field(4, "timeAdded", Kind::Time),
]);

static NODE_STATUS: Message =
    Message(&[field(4, "conditions", Kind::Many(&CONDITION)), field(7, "nodeInfo", Kind::One(&NODE_INFO))]);

static CONDITION: Message = Message(&[
    field(1, "type", Kind::Text),
    field(2, "status", Kind::Text),
    field(5, "reason", Kind::Text),
    field(6, "message", Kind::Text),
]);

static NODE_INFO: Message = Message(&[field(3, "bootID", Kind::Text)]);

static POD_LIST: Message =
    Message(&[field(1, "metadata", Kind::One(&LIST_META)), field(2, "items", Kind::Many(&POD))]);

static POD: Message = Message(&[
    field(1, "metadata", Kind::One(&META)),
    field(2, "spec", Kind::One(&POD_SPEC)),
    field(3, "status", Kind::One(&POD_STATUS)),
]);

static POD_SPEC: Message = Message(&[field(10, "nodeName", Kind::Text)]);

static POD_STATUS: Message = Message(&[
    field(1, "phase", Kind::Text),
    field(2, "conditions", Kind::Many(&CONDITION)),
    field(3, "message", Kind::Text),
    field(4, "reason", Kind::Text),
    field(8, "containerStatuses", Kind::Many(&CONTAINER)),
    field(10, "initContainerStatuses", Kind::Many(&CONTAINER)),
]);

static CONTAINER: Message = Message(&[
    field(1, "name", Kind::Text),
    field(2, "state", Kind::One(&CONTAINER_STATE)),
    field(5, "restartCount", Kind::Whole),
    field(8, "containerID", Kind::Text),
]);

static CONTAINER_STATE: Message = Message(&[
    field(1, "waiting", Kind::One(&WAITING)),
    field(2, "running", Kind::One(&NOTHING)),
    field(3, "terminated", Kind::One(&TERMINATED)),
]);

static NOTHING: Message = Message(&[]);

static WAITING: Message = Message(&[field(1, "reason", Kind::Text), field(2, "message", Kind::Text)]);

static TERMINATED: Message = Message(&[
    field(1, "exitCode", Kind::Whole),
    field(3, "reason", Kind::Text),
    field(4, "message", Kind::Text),
]);

static STATUS: Message = Message(&[
    field(2, "status", Kind::Text),
    field(3, "message", Kind::Text),
    field(4, "reason", Kind::Text),
    field(5, "details", Kind::One(&DETAILS)),
    field(6, "code", Kind::Whole),
]);

static DETAILS: Message = Message(&[
    field(1, "name", Kind::Text),
    field(2, "group", Kind::Text),
    field(3, "kind", Kind::Text),
    field(4, "causes", Kind::Many(&CAUSE)),
    field(5, "retryAfterSeconds", Kind::Whole),
    field(6, "uid", Kind::Text),
]);

static CAUSE: Message = Message(&[
    field(1, "reason", Kind::Text),
    field(2, "message", Kind::Text),
    field(3, "field", Kind::Text),
]);
