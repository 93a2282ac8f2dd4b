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

const fn property(name: &'static str, kind: Type, presence: Presence, description: &'static str) -> Property {
    Property { name, kind, presence, description, merge: Merge::Unsaid }
}

const fn merged(name: &'static str, kind: Type, merge: Merge, description: &'static str) -> Property {
    Property { name, kind, presence: Optional, description, merge }
}

const API_VERSION: Property =
    property("apiVersion", Type::String, Optional, "Group and version of this object's schema.");
const KIND: Property = property("kind", Type::String, Optional, "Name of this object's type.");

/// All schemas: first the Lease and its parts, then the schemas of requests and responses.
pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "coordination.Lease",
        description: "Lease says who holds something, and until when. Nodes send their heartbeats as Leases, and controllers elect leaders by them.",
        kind: Kind::Own,
        shape: Shape::Object(&[
            API_VERSION,
            KIND,
            property("metadata", Type::Value("meta.ObjectMeta"), Optional, "Name, labels and history of the Lease."),
            property("spec", Type::Value("coordination.LeaseSpec"), Optional, "Who holds the Lease, and for how long."),
        ]),
    },
    Definition {
        name: "coordination.LeaseList",
        description: "LeaseList is what a list request gives.",
        kind: Kind::Own,
        shape: Shape::Object(&[
            API_VERSION,
            property("items", Type::List("coordination.Lease"), Required, "The Leases."),
            KIND,
            property("metadata", Type::Value("meta.ListMeta"), Optional, "Version of the list, and where it goes on."),
        ]),
    },
    Definition {
        name: "coordination.LeaseSpec",
        description: "LeaseSpec is what the holder of a Lease writes.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            property(
                "acquireTime",
                Type::Optional("meta.MicroTime"),
                Optional,
                "When the present holder took the Lease.",
            ),
            property(
                "holderIdentity",
                Type::String,
                Optional,
                "Who holds the Lease. Not empty, if it is set. With coordinated leader election, the winner of the election.",
            ),
            property(
                "leaseDurationSeconds",
                Type::Int32,
                Optional,
                "Seconds after renewTime in which no other candidate may take the Lease.",
            ),
            property(
                "leaseTransitions",
                Type::Int32,
                Optional,
                "How often the Lease has gone from one holder to another.",
            ),
            property(
                "preferredHolder",
                Type::String,
                Optional,
                "To whom the present holder should hand over, in coordinated leader election; strategy must be set as well.",
            ),
            property(
                "renewTime",
                Type::Optional("meta.MicroTime"),
                Optional,
                "When the present holder last said that it is there.",
            ),
            property(
                "strategy",
                Type::String,
                Optional,
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
            property(
                "annotations",
                Type::StringMap,
                Optional,
                "Notes of any content for tools and people. Objects cannot be selected by them.",
            ),
            property(
                "creationTimestamp",
                Type::Optional("meta.Time"),
                Optional,
                "When the server stored the object first. Clients cannot set it.",
            ),
            property(
                "deletionGracePeriodSeconds",
                Type::Int64,
                Optional,
                "Seconds given to the object to end in good order, once its deletion was asked for. Clients cannot set it.",
            ),
            property(
                "deletionTimestamp",
                Type::Optional("meta.Time"),
                Optional,
                "When the object is to be gone, once its deletion was asked for; it stays while finalizers hold it. Clients cannot set it.",
            ),
            merged(
                "finalizers",
                Type::Strings,
                Merge::Set,
                "Who has work to do before the object may be removed. Once deletion was asked for, names can be taken out and not added.",
            ),
            property(
                "generateName",
                Type::String,
                Optional,
                "Beginning of a name that the server completes with a random end, if the object is created without a name.",
            ),
            property(
                "generation",
                Type::Int64,
                Optional,
                "Number of a state that its author wanted. Leases do not count it up.",
            ),
            property("labels", Type::StringMap, Optional, "Keys and values by which objects can be selected."),
            merged(
                "managedFields",
                Type::List("meta.ManagedFieldsEntry"),
                Merge::Atomic,
                "Which manager has set which fields. The server keeps it.",
            ),
            property(
                "name",
                Type::String,
                Optional,
                "Name of the object, unique in its namespace. It cannot be changed.",
            ),
            property("namespace", Type::String, Optional, "Namespace of the object. It cannot be changed."),
            merged(
                "ownerReferences",
                Type::List("meta.OwnerReference"),
                Merge::ByUid,
                "Objects that this one belongs to. When all of them are gone the garbage collector deletes it. At most one may be its controller.",
            ),
            property(
                "resourceVersion",
                Type::String,
                Optional,
                "Version of the object, of no meaning but to be compared. An update that names another version than the stored one is refused.",
            ),
            property("selfLink", Type::String, Optional, "Of no use any more; the server leaves it out."),
            property(
                "uid",
                Type::String,
                Optional,
                "Tells the object from all others that have had or will have its name. The server sets it.",
            ),
        ]),
    },
    Definition {
        name: "meta.OwnerReference",
        description: "OwnerReference names an object that owns this one, in the same namespace or in none.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            property("apiVersion", Type::String, Required, "Group and version of the owner."),
            property(
                "blockOwnerDeletion",
                Type::Boolean,
                Optional,
                "Whether a deletion of the owner in the foreground waits until this object is gone.",
            ),
            property("controller", Type::Boolean, Optional, "Whether the owner is the one that manages this object."),
            property("kind", Type::String, Required, "Kind of the owner."),
            property("name", Type::String, Required, "Name of the owner."),
            property("uid", Type::String, Required, "UID of the owner."),
        ]),
    },
    Definition {
        name: "meta.ManagedFieldsEntry",
        description: "ManagedFieldsEntry says which fields one manager has set by one kind of operation.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            property("apiVersion", Type::String, Optional, "Version of the schema that the fields are of."),
            property("fieldsType", Type::String, Optional, "Format of the fields; FieldsV1 is the only one."),
            property("fieldsV1", Type::Optional("meta.FieldsV1"), Optional, "The fields."),
            property("manager", Type::String, Optional, "Name of the manager."),
            property("operation", Type::String, Optional, "How it set them: Apply or Update."),
            property(
                "subresource",
                Type::String,
                Optional,
                "The subresource by which it set them; empty is the object itself.",
            ),
            property("time", Type::Optional("meta.Time"), Optional, "When the manager last changed what it manages."),
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
            property(
                "continue",
                Type::String,
                Optional,
                "If there is more: the token to ask for it with. Its content is the server's own.",
            ),
            property(
                "remainingItemCount",
                Type::Int64,
                Optional,
                "How many items come after these, if that is known; lists with selectors do not tell.",
            ),
            property("resourceVersion", Type::String, Optional, "Version of the list, from which a watch can go on."),
            property("selfLink", Type::String, Optional, "Of no use any more; the server leaves it out."),
            property(
                "shardInfo",
                Type::Optional("meta.ShardInfo"),
                Optional,
                "Which part of the objects the list has, by the shardSelector of the request. Alpha.",
            ),
        ]),
    },
    Definition {
        name: "meta.ShardInfo",
        description: "ShardInfo says that a list has a part of the objects, and which.",
        kind: Kind::Part,
        shape: Shape::Object(&[property(
            "selector",
            Type::String,
            Required,
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
            property(
                "gracePeriodSeconds",
                Type::Int64,
                Optional,
                "Seconds given to the object to end in good order. Leases go at once.",
            ),
            property(
                "ignoreStoreReadErrorWithClusterBreakingPotential",
                Type::Boolean,
                Optional,
                "Deletes even what the store cannot read. Of no effect here.",
            ),
            KIND,
            property(
                "orphanDependents",
                Type::Boolean,
                Optional,
                "Older form of propagationPolicy: true is Orphan, false is Background. Not both may be set.",
            ),
            property(
                "preconditions",
                Type::Optional("meta.Preconditions"),
                Optional,
                "What must hold, or the deletion is refused with a conflict.",
            ),
            property(
                "propagationPolicy",
                Type::String,
                Optional,
                "What becomes of the objects that this one owns: Orphan keeps them, Background deletes them afterwards, Foreground before.",
            ),
        ]),
    },
    Definition {
        name: "meta.Preconditions",
        description: "Preconditions must hold for an operation to be done.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            property("resourceVersion", Type::String, Optional, "The version that the object must have."),
            property("uid", Type::String, Optional, "The UID that the object must have."),
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
            property("code", Type::Int32, Optional, "HTTP status code that goes with the outcome."),
            property(
                "details",
                Type::Optional("meta.StatusDetails"),
                Optional,
                "More for programs, as the reason has it.",
            ),
            KIND,
            property("message", Type::String, Optional, "The outcome in words, for people."),
            property("metadata", Type::Value("meta.ListMeta"), Optional, "Metadata, as of a list."),
            property("reason", Type::String, Optional, "Why it failed, in one word for programs."),
            property("status", Type::String, Optional, "Success or Failure."),
        ]),
    },
    Definition {
        name: "meta.StatusDetails",
        description: "StatusDetails says what an outcome is about.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            merged("causes", Type::List("meta.StatusCause"), Merge::Atomic, "All that was wrong."),
            property("group", Type::String, Optional, "Group of the object."),
            property("kind", Type::String, Optional, "Kind or resource of the object."),
            property("name", Type::String, Optional, "Name of the object."),
            property("retryAfterSeconds", Type::Int32, Optional, "Seconds after which to try again, if that may help."),
            property("uid", Type::String, Optional, "UID of the object."),
        ]),
    },
    Definition {
        name: "meta.StatusCause",
        description: "StatusCause is one thing that was wrong.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            property(
                "field",
                Type::String,
                Optional,
                "The field it is about, as a path: spec.renewTime, items[0].name.",
            ),
            property("message", Type::String, Optional, "What was wrong, for people."),
            property("reason", Type::String, Optional, "What was wrong, in one word for programs."),
        ]),
    },
    Definition {
        name: "meta.WatchEvent",
        description: "WatchEvent is one change, as a watch tells it.",
        kind: Kind::Both,
        shape: Shape::Object(&[
            property(
                "object",
                Type::Optional("runtime.RawExtension"),
                Required,
                "The object after the change; before it, if it was deleted; a Status if the watch failed; only a version in a bookmark.",
            ),
            property("type", Type::String, Required, "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."),
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
            property("groupVersion", Type::String, Required, "The group and version that the resources are of."),
            KIND,
            Property {
                name: "resources",
                kind: Type::List("meta.APIResource"),
                presence: Required,
                description: "The resources.",
                merge: Merge::Atomic,
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
            property("group", Type::String, Optional, "Group of its objects, if it is another than the list's."),
            property("kind", Type::String, Required, "Kind of its objects."),
            property("name", Type::String, Required, "Its name in paths, in the plural."),
            property("namespaced", Type::Boolean, Required, "Whether its objects are in namespaces."),
            merged("shortNames", Type::Strings, Merge::Atomic, "Shorter names for the command line."),
            property("singularName", Type::String, Required, "Its name in the singular."),
            property(
                "storageVersionHash",
                Type::String,
                Optional,
                "Changes when objects are stored in another version; of no further meaning.",
            ),
            property("verbs", Type::Strings, Required, "What can be done with it."),
            property("version", Type::String, Optional, "Version of its objects, if it is another than the list's."),
        ]),
    },
];
