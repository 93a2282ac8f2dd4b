//! The schemas of the API's objects. Each schema is defined once, for all OpenAPI documents.

/// The definition of a schema.
pub(super) struct Definition {
    /// Short name of the schema with its package. `schema::full_name` converts the short name to the full name.
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) shape: Shape,
    /// Role of the schema's objects.
    pub(super) kind: Kind,
}

/// The role of a schema's objects. The role decides whether the objects have the fields `kind` and `apiVersion`, and
/// which API group the objects belong to.
pub(super) enum Kind {
    /// Parts of other objects.
    Part,
    /// Top-level objects of the group `coordination.k8s.io`.
    Own,
    /// Top-level objects of the core group, version `v1`.
    Meta,
    /// Top-level objects of both groups, `coordination.k8s.io` and core, such as `DeleteOptions`.
    Both,
}

pub(super) enum Shape {
    /// A JSON object with these properties.
    Object(&'static [Property]),
    /// A JSON object with any properties.
    Anything,
    /// A time as a string (RFC 3339).
    DateTime,
}

pub(super) struct Property {
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) presence: Presence,
    pub(super) description: &'static str,
    /// Merge strategy, if the property is a list; otherwise [`Merge::Unsaid`].
    pub(super) merge: Merge,
}

#[derive(Clone, Copy)]
pub(super) enum Type {
    Boolean,
    Int32,
    Int64,
    /// A list of strings.
    Strings,
    /// A map of strings to strings.
    StringMap,
    String,
    /// An object of the schema with this name. The default value is the empty object.
    Value(&'static str),
    /// An object of the schema with this name. The object may be absent.
    Optional(&'static str),
    /// A list of objects of the schema with this name.
    List(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Presence {
    Optional,
    Required,
}

/// The merge strategy of a list: for server-side apply (Kubernetes, "Merge strategy"), and `patchStrategy` of the
/// strategic merge patch.
#[derive(Clone, Copy)]
pub(super) enum Merge {
    /// The schema contains no merge strategy.
    Unsaid,
    /// A patch replaces the whole list.
    Atomic,
    /// Owner references with the same UID are merged.
    ByUid,
    /// The list is a set of strings.
    Set,
}

use Presence::{Optional, Required};

const fn optional(name: &'static str, kind: Type, description: &'static str) -> Property {
    Property { name, kind, presence: Optional, description, merge: Merge::Unsaid }
}

const fn required(name: &'static str, kind: Type, description: &'static str) -> Property {
    Property { presence: Required, ..optional(name, kind, description) }
}

const fn merged(name: &'static str, kind: Type, merge: Merge, description: &'static str) -> Property {
    Property { merge, ..optional(name, kind, description) }
}

const API_VERSION: Property = optional("apiVersion", Type::String, "Group and version of this object's schema.");
const KIND: Property = optional("kind", Type::String, "Name of this object's type.");

/// All schemas: first the Lease and its parts, then the schemas of requests and responses.
pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "coordination.Lease",
        description: "Lease says who holds something, and until when. Nodes send their heartbeats as Leases, and controllers elect leaders by them.",
        kind: Kind::Own,
        shape: Shape::Object(&[
            API_VERSION,
            KIND,
            optional("metadata", Type::Value("meta.ObjectMeta"), "Name, labels and history of the Lease."),
            optional("spec", Type::Value("coordination.LeaseSpec"), "Who holds the Lease, and for how long."),
        ]),
    },
    Definition {
        name: "coordination.LeaseList",
        description: "LeaseList is what a list request gives.",
        kind: Kind::Own,
        shape: Shape::Object(&[
            API_VERSION,
            required("items", Type::List("coordination.Lease"), "The Leases."),
            KIND,
            optional("metadata", Type::Value("meta.ListMeta"), "Version of the list, and where it goes on."),
        ]),
    },
    Definition {
        name: "coordination.LeaseSpec",
        description: "LeaseSpec is what the holder of a Lease writes.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("acquireTime", Type::Optional("meta.MicroTime"), "When the present holder took the Lease."),
            optional(
                "holderIdentity",
                Type::String,
                "Who holds the Lease. Not empty, if it is set. With coordinated leader election, the winner of the election.",
            ),
            optional(
                "leaseDurationSeconds",
                Type::Int32,
                "Seconds after renewTime in which no other candidate may take the Lease.",
            ),
            optional("leaseTransitions", Type::Int32, "How often the Lease has gone from one holder to another."),
            optional(
                "preferredHolder",
                Type::String,
                "To whom the present holder should hand over, in coordinated leader election; strategy must be set as well.",
            ),
            optional(
                "renewTime",
                Type::Optional("meta.MicroTime"),
                "When the present holder last said that it is there.",
            ),
            optional(
                "strategy",
                Type::String,
                "How the holder is chosen, in coordinated leader election; if it is not set, candidates settle it among themselves.",
            ),
        ]),
    },
    Definition {
        name: "meta.MicroTime",
        description: "MicroTime is a time to the microsecond.",
        kind: Kind::Part,
        shape: Shape::DateTime,
    },
    Definition {
        name: "meta.Time",
        description: "Time is a time to the second.",
        kind: Kind::Part,
        shape: Shape::DateTime,
    },
    Definition {
        name: "meta.ObjectMeta",
        description: "ObjectMeta is what all stored objects have: name, labels, history.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional(
                "annotations",
                Type::StringMap,
                "Notes of any content for tools and people. Objects cannot be selected by them.",
            ),
            optional(
                "creationTimestamp",
                Type::Optional("meta.Time"),
                "When the server stored the object first. Clients cannot set it.",
            ),
            optional(
                "deletionGracePeriodSeconds",
                Type::Int64,
                "Seconds given to the object to end in good order, once its deletion was asked for. Clients cannot set it.",
            ),
            optional(
                "deletionTimestamp",
                Type::Optional("meta.Time"),
                "When the object is to be gone, once its deletion was asked for; it stays while finalizers hold it. Clients cannot set it.",
            ),
            merged(
                "finalizers",
                Type::Strings,
                Merge::Set,
                "Who has work to do before the object may be removed. Once deletion was asked for, names can be taken out and not added.",
            ),
            optional(
                "generateName",
                Type::String,
                "Beginning of a name that the server completes with a random end, if the object is created without a name.",
            ),
            optional("generation", Type::Int64, "Number of a state that its author wanted. Leases do not count it up."),
            optional("labels", Type::StringMap, "Keys and values by which objects can be selected."),
            merged(
                "managedFields",
                Type::List("meta.ManagedFieldsEntry"),
                Merge::Atomic,
                "Which manager has set which fields. The server keeps it.",
            ),
            optional("name", Type::String, "Name of the object, unique in its namespace. It cannot be changed."),
            optional("namespace", Type::String, "Namespace of the object. It cannot be changed."),
            merged(
                "ownerReferences",
                Type::List("meta.OwnerReference"),
                Merge::ByUid,
                "Objects that this one belongs to. When all of them are gone the garbage collector deletes it. At most one may be its controller.",
            ),
            optional(
                "resourceVersion",
                Type::String,
                "Version of the object, of no meaning but to be compared. An update that names another version than the stored one is refused.",
            ),
            optional("selfLink", Type::String, "Of no use any more; the server leaves it out."),
            optional(
                "uid",
                Type::String,
                "Tells the object from all others that have had or will have its name. The server sets it.",
            ),
        ]),
    },
    Definition {
        name: "meta.OwnerReference",
        description: "OwnerReference names an object that owns this one, in the same namespace or in none.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            required("apiVersion", Type::String, "Group and version of the owner."),
            optional(
                "blockOwnerDeletion",
                Type::Boolean,
                "Whether a deletion of the owner in the foreground waits until this object is gone.",
            ),
            optional("controller", Type::Boolean, "Whether the owner is the one that manages this object."),
            required("kind", Type::String, "Kind of the owner."),
            required("name", Type::String, "Name of the owner."),
            required("uid", Type::String, "UID of the owner."),
        ]),
    },
    Definition {
        name: "meta.ManagedFieldsEntry",
        description: "ManagedFieldsEntry says which fields one manager has set by one kind of operation.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("apiVersion", Type::String, "Version of the schema that the fields are of."),
            optional("fieldsType", Type::String, "Format of the fields; FieldsV1 is the only one."),
            optional("fieldsV1", Type::Optional("meta.FieldsV1"), "The fields."),
            optional("manager", Type::String, "Name of the manager."),
            optional("operation", Type::String, "How it set them: Apply or Update."),
            optional("subresource", Type::String, "The subresource by which it set them; empty is the object itself."),
            optional("time", Type::Optional("meta.Time"), "When the manager last changed what it manages."),
        ]),
    },
    Definition {
        name: "meta.FieldsV1",
        description: "FieldsV1 is a set of fields as a tree: a member for each field, and the fields below it inside.",
        kind: Kind::Part,
        shape: Shape::Anything,
    },
    Definition {
        name: "meta.ListMeta",
        description: "ListMeta says of which version a list is, and whether there is more.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional(
                "continue",
                Type::String,
                "If there is more: the token to ask for it with. Its content is the server's own.",
            ),
            optional(
                "remainingItemCount",
                Type::Int64,
                "How many items come after these, if that is known; lists with selectors do not tell.",
            ),
            optional("resourceVersion", Type::String, "Version of the list, from which a watch can go on."),
            optional("selfLink", Type::String, "Of no use any more; the server leaves it out."),
            optional(
                "shardInfo",
                Type::Optional("meta.ShardInfo"),
                "Which part of the objects the list has, by the shardSelector of the request. Alpha.",
            ),
        ]),
    },
    Definition {
        name: "meta.ShardInfo",
        description: "ShardInfo says that a list has a part of the objects, and which.",
        kind: Kind::Part,
        shape: Shape::Object(&[required(
            "selector",
            Type::String,
            "The shardSelector of the request, in the server's spelling.",
        )]),
    },
    Definition {
        name: "meta.DeleteOptions",
        description: "DeleteOptions says how an object is to be deleted, and on which conditions.",
        kind: Kind::Both,
        shape: Shape::Object(&[
            API_VERSION,
            merged("dryRun", Type::Strings, Merge::Atomic, "All does everything but the deletion itself."),
            optional(
                "gracePeriodSeconds",
                Type::Int64,
                "Seconds given to the object to end in good order. Leases go at once.",
            ),
            optional(
                "ignoreStoreReadErrorWithClusterBreakingPotential",
                Type::Boolean,
                "Deletes even what the store cannot read. Of no effect here.",
            ),
            KIND,
            optional(
                "orphanDependents",
                Type::Boolean,
                "Older form of propagationPolicy: true is Orphan, false is Background. Not both may be set.",
            ),
            optional(
                "preconditions",
                Type::Optional("meta.Preconditions"),
                "What must hold, or the deletion is refused with a conflict.",
            ),
            optional(
                "propagationPolicy",
                Type::String,
                "What becomes of the objects that this one owns: Orphan keeps them, Background deletes them afterwards, Foreground before.",
            ),
        ]),
    },
    Definition {
        name: "meta.Preconditions",
        description: "Preconditions must hold for an operation to be done.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("resourceVersion", Type::String, "The version that the object must have."),
            optional("uid", Type::String, "The UID that the object must have."),
        ]),
    },
    Definition {
        name: "meta.Patch",
        description: "Patch is a change of an object, in the form that the content type of the request says.",
        kind: Kind::Part,
        shape: Shape::Anything,
    },
    Definition {
        name: "meta.Status",
        description: "Status is the outcome of a request that has no object to give.",
        kind: Kind::Meta,
        shape: Shape::Object(&[
            API_VERSION,
            optional("code", Type::Int32, "HTTP status code that goes with the outcome."),
            optional("details", Type::Optional("meta.StatusDetails"), "More for programs, as the reason has it."),
            KIND,
            optional("message", Type::String, "The outcome in words, for people."),
            optional("metadata", Type::Value("meta.ListMeta"), "Metadata, as of a list."),
            optional("reason", Type::String, "Why it failed, in one word for programs."),
            optional("status", Type::String, "Success or Failure."),
        ]),
    },
    Definition {
        name: "meta.StatusDetails",
        description: "StatusDetails says what an outcome is about.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            merged("causes", Type::List("meta.StatusCause"), Merge::Atomic, "All that was wrong."),
            optional("group", Type::String, "Group of the object."),
            optional("kind", Type::String, "Kind or resource of the object."),
            optional("name", Type::String, "Name of the object."),
            optional("retryAfterSeconds", Type::Int32, "Seconds after which to try again, if that may help."),
            optional("uid", Type::String, "UID of the object."),
        ]),
    },
    Definition {
        name: "meta.StatusCause",
        description: "StatusCause is one thing that was wrong.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("field", Type::String, "The field it is about, as a path: spec.renewTime, items[0].name."),
            optional("message", Type::String, "What was wrong, for people."),
            optional("reason", Type::String, "What was wrong, in one word for programs."),
        ]),
    },
    Definition {
        name: "meta.WatchEvent",
        description: "WatchEvent is one change, as a watch tells it.",
        kind: Kind::Both,
        shape: Shape::Object(&[
            required(
                "object",
                Type::Optional("runtime.RawExtension"),
                "The object after the change; before it, if it was deleted; a Status if the watch failed; only a version in a bookmark.",
            ),
            required("type", Type::String, "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."),
        ]),
    },
    Definition {
        name: "runtime.RawExtension",
        description: "RawExtension is an object of any kind.",
        kind: Kind::Part,
        shape: Shape::Anything,
    },
    Definition {
        name: "meta.APIResourceList",
        description: "APIResourceList names the resources of one version of a group.",
        kind: Kind::Meta,
        shape: Shape::Object(&[
            API_VERSION,
            required("groupVersion", Type::String, "The group and version that the resources are of."),
            KIND,
            Property {
                presence: Required,
                ..merged("resources", Type::List("meta.APIResource"), Merge::Atomic, "The resources.")
            },
        ]),
    },
    Definition {
        name: "meta.APIResource",
        description: "APIResource says what a resource is called and what can be done with it.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            merged(
                "categories",
                Type::Strings,
                Merge::Atomic,
                "Names of groups of resources that it belongs to, such as all.",
            ),
            optional("group", Type::String, "Group of its objects, if it is another than the list's."),
            required("kind", Type::String, "Kind of its objects."),
            required("name", Type::String, "Its name in paths, in the plural."),
            required("namespaced", Type::Boolean, "Whether its objects are in namespaces."),
            merged("shortNames", Type::Strings, Merge::Atomic, "Shorter names for the command line."),
            required("singularName", Type::String, "Its name in the singular."),
            optional(
                "storageVersionHash",
                Type::String,
                "Changes when objects are stored in another version; of no further meaning.",
            ),
            required("verbs", Type::Strings, "What can be done with it."),
            optional("version", Type::String, "Version of its objects, if it is another than the list's."),
        ]),
    },
];
