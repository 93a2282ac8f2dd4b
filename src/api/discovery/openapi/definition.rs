//! The schemas of the API's objects. Each schema is defined once, for all OpenAPI documents.

/// The definition of a schema.
pub(super) struct Definition {
    /// Package and short name of the schema, such as `meta.Status`. `schema::full_name` converts them to the full name.
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
    /// Top-level objects of the groups `coordination.k8s.io` and core, such as `DeleteOptions`.
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

/// Description of `gracePeriodSeconds`, as a query parameter and in `DeleteOptions`.
pub(super) const GRACE_PERIOD_TEXT: &str = "Time for a graceful termination, in seconds. Leases are deleted at once.";
/// Description of `ignoreStoreReadErrorWithClusterBreakingPotential`, as a query parameter and in `DeleteOptions`.
pub(super) const IGNORE_READ_ERROR_TEXT: &str =
    "Deletes an object even if it cannot be read from the store. This server only validates the option.";

/// All schemas: first the Lease and its parts, then the schemas of requests and responses.
pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "coordination.Lease",
        description: "Lease names the holder of a lock or role, and the time of its last renewal. Nodes send heartbeats as renewals of Leases. Controllers use Leases to elect leaders.",
        kind: Kind::Own,
        shape: Shape::Object(&[
            API_VERSION,
            KIND,
            optional("metadata", Type::Value("meta.ObjectMeta"), "Standard metadata of the Lease."),
            optional("spec", Type::Value("coordination.LeaseSpec"), "Holder, duration and times of the Lease."),
        ]),
    },
    Definition {
        name: "coordination.LeaseList",
        description: "LeaseList is a list of Leases.",
        kind: Kind::Own,
        shape: Shape::Object(&[
            API_VERSION,
            required("items", Type::List("coordination.Lease"), "The Leases."),
            KIND,
            optional("metadata", Type::Value("meta.ListMeta"), "Standard metadata of the list."),
        ]),
    },
    Definition {
        name: "coordination.LeaseSpec",
        description: "LeaseSpec is the content of a Lease, which the holder writes.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional(
                "acquireTime",
                Type::Optional("meta.MicroTime"),
                "Time at which the current holder acquired the Lease.",
            ),
            optional(
                "holderIdentity",
                Type::String,
                "Identity of the holder. In coordinated leader election, the identity of the elected candidate.",
            ),
            optional(
                "leaseDurationSeconds",
                Type::Int32,
                "Duration of the Lease in seconds. Other candidates must wait this long after renewTime before they acquire the Lease.",
            ),
            optional("leaseTransitions", Type::Int32, "Number of changes of the holder."),
            optional(
                "preferredHolder",
                Type::String,
                "Identity of the candidate to which the current holder should give the Lease, in coordinated leader election. Requires strategy.",
            ),
            optional(
                "renewTime",
                Type::Optional("meta.MicroTime"),
                "Time at which the current holder last renewed the Lease.",
            ),
            optional(
                "strategy",
                Type::String,
                "Strategy by which coordinated leader election picks the holder. If it is not set, the candidates elect without coordination.",
            ),
        ]),
    },
    Definition {
        name: "meta.MicroTime",
        description: "MicroTime is a time in microseconds.",
        kind: Kind::Part,
        shape: Shape::DateTime,
    },
    Definition {
        name: "meta.Time",
        description: "Time is a time in seconds.",
        kind: Kind::Part,
        shape: Shape::DateTime,
    },
    Definition {
        name: "meta.ObjectMeta",
        description: "ObjectMeta is the metadata of a stored object.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional(
                "annotations",
                Type::StringMap,
                "Unstructured data for tools and people. Selectors cannot use annotations.",
            ),
            optional(
                "creationTimestamp",
                Type::Optional("meta.Time"),
                "Time at which the server created the object. Read-only.",
            ),
            optional(
                "deletionGracePeriodSeconds",
                Type::Int64,
                "Time for a graceful termination after a deletion request, in seconds. Read-only.",
            ),
            optional(
                "deletionTimestamp",
                Type::Optional("meta.Time"),
                "Time at which the object will be deleted, after a deletion request. The object remains while it has finalizers. Read-only.",
            ),
            merged(
                "finalizers",
                Type::Strings,
                Merge::Set,
                "Names of the components that must act before the object is removed. After a deletion request, names can only be removed from this list.",
            ),
            optional(
                "generateName",
                Type::String,
                "Prefix of a generated name. If a new object has no name, the server appends a random suffix to the prefix.",
            ),
            optional("generation", Type::Int64, "Number of the desired state. Updates of a Lease do not increment it."),
            optional("labels", Type::StringMap, "Keys and values that selectors can use."),
            merged(
                "managedFields",
                Type::List("meta.ManagedFieldsEntry"),
                Merge::Atomic,
                "Fields that each manager owns. The server maintains this list.",
            ),
            optional("name", Type::String, "Name of the object, unique in its namespace. Immutable."),
            optional("namespace", Type::String, "Namespace of the object. Immutable."),
            merged(
                "ownerReferences",
                Type::List("meta.OwnerReference"),
                Merge::ByUid,
                "Owners of the object. The garbage collector deletes the object when all its owners are gone. At most one owner may be its controller.",
            ),
            optional(
                "resourceVersion",
                Type::String,
                "Opaque version of the object. An update fails with a conflict if it names another version than the stored one.",
            ),
            optional("selfLink", Type::String, "Deprecated. The server does not set it."),
            optional(
                "uid",
                Type::String,
                "Unique identifier, which differs between objects that have the same name at different times. Read-only.",
            ),
        ]),
    },
    Definition {
        name: "meta.OwnerReference",
        description: "OwnerReference names an owner of the object. The owner is cluster-scoped or in the same namespace.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            required("apiVersion", Type::String, "API group and version of the owner."),
            optional(
                "blockOwnerDeletion",
                Type::Boolean,
                "Whether a foreground deletion of the owner waits until this object is gone.",
            ),
            optional("controller", Type::Boolean, "Whether the owner is the controller of this object."),
            required("kind", Type::String, "Kind of the owner."),
            required("name", Type::String, "Name of the owner."),
            required("uid", Type::String, "UID of the owner."),
        ]),
    },
    Definition {
        name: "meta.ManagedFieldsEntry",
        description: "ManagedFieldsEntry names the fields that one manager owns through one kind of operation.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("apiVersion", Type::String, "API version of the schema of the fields."),
            optional("fieldsType", Type::String, "Format of the fields. The only format is FieldsV1."),
            optional("fieldsV1", Type::Optional("meta.FieldsV1"), "Fields that the manager owns."),
            optional("manager", Type::String, "Name of the manager."),
            optional("operation", Type::String, "Kind of operation: Apply or Update."),
            optional("subresource", Type::String, "Subresource that the manager wrote; empty for the object itself."),
            optional(
                "time",
                Type::Optional("meta.Time"),
                "Time at which the manager last changed the fields or its ownership.",
            ),
        ]),
    },
    Definition {
        name: "meta.FieldsV1",
        description: "FieldsV1 is a set of fields as a tree. Each field is a member that contains the fields below it.",
        kind: Kind::Part,
        shape: Shape::Anything,
    },
    Definition {
        name: "meta.ListMeta",
        description: "ListMeta is the metadata of a list.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("continue", Type::String, "Opaque token for the next page; empty on the last page."),
            optional(
                "remainingItemCount",
                Type::Int64,
                "Number of items on later pages, if it is known. Not set for lists with selectors.",
            ),
            optional("resourceVersion", Type::String, "Version of the list. A watch can start from this version."),
            optional("selfLink", Type::String, "Deprecated. The server does not set it."),
            optional(
                "shardInfo",
                Type::Optional("meta.ShardInfo"),
                "Shard that the list contains, if the request has a shardSelector. Alpha.",
            ),
        ]),
    },
    Definition {
        name: "meta.ShardInfo",
        description: "ShardInfo names the shard that a list contains.",
        kind: Kind::Part,
        shape: Shape::Object(&[required(
            "selector",
            Type::String,
            "The shardSelector of the request, in canonical form.",
        )]),
    },
    Definition {
        name: "meta.DeleteOptions",
        description: "DeleteOptions contains options and preconditions of a deletion.",
        kind: Kind::Both,
        shape: Shape::Object(&[
            API_VERSION,
            merged(
                "dryRun",
                Type::Strings,
                Merge::Atomic,
                "With All, the server checks the request but does not delete.",
            ),
            optional("gracePeriodSeconds", Type::Int64, GRACE_PERIOD_TEXT),
            optional("ignoreStoreReadErrorWithClusterBreakingPotential", Type::Boolean, IGNORE_READ_ERROR_TEXT),
            KIND,
            optional(
                "orphanDependents",
                Type::Boolean,
                "Deprecated form of propagationPolicy: true means Orphan, false means Background. The two options exclude each other.",
            ),
            optional(
                "preconditions",
                Type::Optional("meta.Preconditions"),
                "Conditions that the object must meet. Otherwise the deletion fails with a conflict.",
            ),
            optional(
                "propagationPolicy",
                Type::String,
                "Deletion of the objects that this object owns: Orphan keeps them, Background deletes them afterwards, Foreground deletes them first.",
            ),
        ]),
    },
    Definition {
        name: "meta.Preconditions",
        description: "Preconditions are conditions that an object must meet before an operation.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional("resourceVersion", Type::String, "Required version of the object."),
            optional("uid", Type::String, "Required UID of the object."),
        ]),
    },
    Definition {
        name: "meta.Patch",
        description: "Patch is a change of an object. The content type of the request defines its format.",
        kind: Kind::Part,
        shape: Shape::Anything,
    },
    Definition {
        name: "meta.Status",
        description: "Status is the result of a request that returns no other object.",
        kind: Kind::Meta,
        shape: Shape::Object(&[
            API_VERSION,
            optional("code", Type::Int32, "HTTP status code of the response."),
            optional("details", Type::Optional("meta.StatusDetails"), "Details about the reason, for programs."),
            KIND,
            optional("message", Type::String, "Description of the result, for people."),
            optional("metadata", Type::Value("meta.ListMeta"), "Standard metadata of a list."),
            optional("reason", Type::String, "Machine-readable reason of a failure, one word."),
            optional("status", Type::String, "Success or Failure."),
        ]),
    },
    Definition {
        name: "meta.StatusDetails",
        description: "StatusDetails names the object and the causes of a failure.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            merged("causes", Type::List("meta.StatusCause"), Merge::Atomic, "Causes of the failure."),
            optional("group", Type::String, "Group of the object."),
            optional("kind", Type::String, "Kind or resource of the object."),
            optional("name", Type::String, "Name of the object."),
            optional("retryAfterSeconds", Type::Int32, "Time after which the client should retry, in seconds."),
            optional("uid", Type::String, "UID of the object."),
        ]),
    },
    Definition {
        name: "meta.StatusCause",
        description: "StatusCause is one cause of a failure.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            optional(
                "field",
                Type::String,
                "Path of the field that caused the failure, such as spec.renewTime or items[0].name.",
            ),
            optional("message", Type::String, "Description of the cause, for people."),
            optional("reason", Type::String, "Machine-readable cause, one word."),
        ]),
    },
    Definition {
        name: "meta.WatchEvent",
        description: "WatchEvent is one event of a watch.",
        kind: Kind::Both,
        shape: Shape::Object(&[
            required(
                "object",
                Type::Optional("runtime.RawExtension"),
                "The object after the change. For DELETED, its last state. For BOOKMARK, an object with only a version. For ERROR, a Status.",
            ),
            required("type", Type::String, "Type of the event: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."),
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
            required("groupVersion", Type::String, "API group and version of the resources."),
            KIND,
            Property {
                presence: Required,
                ..merged("resources", Type::List("meta.APIResource"), Merge::Atomic, "The resources.")
            },
        ]),
    },
    Definition {
        name: "meta.APIResource",
        description: "APIResource describes the names and the verbs of a resource.",
        kind: Kind::Part,
        shape: Shape::Object(&[
            merged("categories", Type::Strings, Merge::Atomic, "Categories of the resource, such as all."),
            optional("group", Type::String, "API group of the objects, if it differs from that of the list."),
            required("kind", Type::String, "Kind of the objects."),
            required("name", Type::String, "Plural name of the resource, which paths contain."),
            required("namespaced", Type::Boolean, "Whether the objects are namespaced."),
            merged("shortNames", Type::Strings, Merge::Atomic, "Short names of the resource for the command line."),
            required("singularName", Type::String, "Singular name of the resource."),
            optional("storageVersionHash", Type::String, "Opaque hash of the version in which objects are stored."),
            required("verbs", Type::Strings, "Verbs that the resource supports."),
            optional("version", Type::String, "API version of the objects, if it differs from that of the list."),
        ]),
    },
];
