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

const fn optional(name: &'static str, kind: Type) -> Property {
    Property { name, kind, presence: Optional, description: "", merge: Merge::Unsaid }
}

const fn required(name: &'static str, kind: Type) -> Property {
    Property { presence: Required, ..optional(name, kind) }
}

const fn merged(name: &'static str, kind: Type, merge: Merge) -> Property {
    Property { merge, ..optional(name, kind) }
}

impl Property {
    /// Returns this property with a description. Every property needs one.
    const fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }
}

/// Returns the definition of a schema whose objects may have any properties.
const fn definition(kind: Kind, name: &'static str, description: &'static str) -> Definition {
    Definition { name, description, shape: Shape::Anything, kind }
}

const fn part(name: &'static str, description: &'static str) -> Definition {
    definition(Kind::Part, name, description)
}

impl Definition {
    /// Returns this definition for objects with these properties.
    const fn with(self, properties: &'static [Property]) -> Self {
        Self { shape: Shape::Object(properties), ..self }
    }
}

const API_VERSION: Property = optional("apiVersion", Type::String).about("Group and version of this object's schema.");
const KIND: Property = optional("kind", Type::String).about("Name of this object's type.");

/// Description of `gracePeriodSeconds`, as a query parameter and in `DeleteOptions`.
pub(super) const GRACE_PERIOD_TEXT: &str = "Time for a graceful termination, in seconds. Leases are deleted at once.";
/// Description of `ignoreStoreReadErrorWithClusterBreakingPotential`, as a query parameter and in `DeleteOptions`.
pub(super) const IGNORE_READ_ERROR_TEXT: &str =
    "Deletes an object even if it cannot be read from the store. This server only validates the option.";

/// All schemas: first the Lease and its parts, then the schemas of requests and responses.
pub(super) const DEFINITIONS: &[Definition] = &[
    definition(
        Kind::Own,
        "coordination.Lease",
        "Lease names the holder of a lock or role, and the time of its last renewal. Nodes send heartbeats as renewals of Leases. Controllers use Leases to elect leaders.",
    )
    .with(&[
        API_VERSION,
        KIND,
        optional("metadata", Type::Value("meta.ObjectMeta")).about("Standard metadata of the Lease."),
        optional("spec", Type::Value("coordination.LeaseSpec")).about("Holder, duration and times of the Lease."),
    ]),
    definition(Kind::Own, "coordination.LeaseList", "LeaseList is a list of Leases.").with(&[
        API_VERSION,
        required("items", Type::List("coordination.Lease")).about("The Leases."),
        KIND,
        optional("metadata", Type::Value("meta.ListMeta")).about("Standard metadata of the list."),
    ]),
    part("coordination.LeaseSpec", "LeaseSpec is the content of a Lease, which the holder writes.").with(&[
        optional("acquireTime", Type::Optional("meta.MicroTime"))
            .about("Time at which the current holder acquired the Lease."),
        optional("holderIdentity", Type::String)
            .about("Identity of the holder. In coordinated leader election, the identity of the elected candidate."),
        optional("leaseDurationSeconds", Type::Int32)
            .about("Duration of the Lease in seconds. Other candidates must wait this long after renewTime before they acquire the Lease."),
        optional("leaseTransitions", Type::Int32).about("Number of changes of the holder."),
        optional("preferredHolder", Type::String)
            .about("Identity of the candidate to which the current holder should give the Lease, in coordinated leader election. Requires strategy."),
        optional("renewTime", Type::Optional("meta.MicroTime"))
            .about("Time at which the current holder last renewed the Lease."),
        optional("strategy", Type::String)
            .about("Strategy by which coordinated leader election picks the holder. If it is not set, the candidates elect without coordination."),
    ]),
    Definition { shape: Shape::DateTime, ..part("meta.MicroTime", "MicroTime is a time in microseconds.") },
    Definition { shape: Shape::DateTime, ..part("meta.Time", "Time is a time in seconds.") },
    part("meta.ObjectMeta", "ObjectMeta is the metadata of a stored object.").with(&[
        optional("annotations", Type::StringMap)
            .about("Unstructured data for tools and people. Selectors cannot use annotations."),
        optional("creationTimestamp", Type::Optional("meta.Time"))
            .about("Time at which the server created the object. Read-only."),
        optional("deletionGracePeriodSeconds", Type::Int64)
            .about("Time for a graceful termination after a deletion request, in seconds. Read-only."),
        optional("deletionTimestamp", Type::Optional("meta.Time"))
            .about("Time at which the object will be deleted, after a deletion request. The object remains while it has finalizers. Read-only."),
        merged("finalizers", Type::Strings, Merge::Set)
            .about("Names of the components that must act before the object is removed. After a deletion request, names can only be removed from this list."),
        optional("generateName", Type::String)
            .about("Prefix of a generated name. If a new object has no name, the server appends a random suffix to the prefix."),
        optional("generation", Type::Int64)
            .about("Number of the desired state. Updates of a Lease do not increment it."),
        optional("labels", Type::StringMap).about("Keys and values that selectors can use."),
        merged("managedFields", Type::List("meta.ManagedFieldsEntry"), Merge::Atomic)
            .about("Fields that each manager owns. The server maintains this list."),
        optional("name", Type::String).about("Name of the object, unique in its namespace. Immutable."),
        optional("namespace", Type::String).about("Namespace of the object. Immutable."),
        merged("ownerReferences", Type::List("meta.OwnerReference"), Merge::ByUid)
            .about("Owners of the object. The garbage collector deletes the object when all its owners are gone. At most one owner may be its controller."),
        optional("resourceVersion", Type::String)
            .about("Opaque version of the object. An update fails with a conflict if it names another version than the stored one."),
        optional("selfLink", Type::String).about("Deprecated. The server does not set it."),
        optional("uid", Type::String)
            .about("Unique identifier, which differs between objects that have the same name at different times. Read-only."),
    ]),
    part(
        "meta.OwnerReference",
        "OwnerReference names an owner of the object. The owner is cluster-scoped or in the same namespace.",
    )
    .with(&[
        required("apiVersion", Type::String).about("API group and version of the owner."),
        optional("blockOwnerDeletion", Type::Boolean)
            .about("Whether a foreground deletion of the owner waits until this object is gone."),
        optional("controller", Type::Boolean).about("Whether the owner is the controller of this object."),
        required("kind", Type::String).about("Kind of the owner."),
        required("name", Type::String).about("Name of the owner."),
        required("uid", Type::String).about("UID of the owner."),
    ]),
    part(
        "meta.ManagedFieldsEntry",
        "ManagedFieldsEntry names the fields that one manager owns through one kind of operation.",
    )
    .with(&[
        optional("apiVersion", Type::String).about("API version of the schema of the fields."),
        optional("fieldsType", Type::String).about("Format of the fields. The only format is FieldsV1."),
        optional("fieldsV1", Type::Optional("meta.FieldsV1")).about("Fields that the manager owns."),
        optional("manager", Type::String).about("Name of the manager."),
        optional("operation", Type::String).about("Kind of operation: Apply or Update."),
        optional("subresource", Type::String).about("Subresource that the manager wrote; empty for the object itself."),
        optional("time", Type::Optional("meta.Time"))
            .about("Time at which the manager last changed the fields or its ownership."),
    ]),
    part(
        "meta.FieldsV1",
        "FieldsV1 is a set of fields as a tree. Each field is a member that contains the fields below it.",
    ),
    part("meta.ListMeta", "ListMeta is the metadata of a list.").with(&[
        optional("continue", Type::String).about("Opaque token for the next page; empty on the last page."),
        optional("remainingItemCount", Type::Int64)
            .about("Number of items on later pages, if it is known. Not set for lists with selectors."),
        optional("resourceVersion", Type::String).about("Version of the list. A watch can start from this version."),
        optional("selfLink", Type::String).about("Deprecated. The server does not set it."),
        optional("shardInfo", Type::Optional("meta.ShardInfo"))
            .about("Shard that the list contains, if the request has a shardSelector. Alpha."),
    ]),
    part("meta.ShardInfo", "ShardInfo names the shard that a list contains.").with(&[required("selector", Type::String)
        .about("The shardSelector of the request, in canonical form.")]),
    definition(
        Kind::Both,
        "meta.DeleteOptions",
        "DeleteOptions contains options and preconditions of a deletion.",
    )
    .with(&[
        API_VERSION,
        merged("dryRun", Type::Strings, Merge::Atomic)
            .about("With All, the server checks the request but does not delete."),
        optional("gracePeriodSeconds", Type::Int64).about(GRACE_PERIOD_TEXT),
        optional("ignoreStoreReadErrorWithClusterBreakingPotential", Type::Boolean).about(IGNORE_READ_ERROR_TEXT),
        KIND,
        optional("orphanDependents", Type::Boolean)
            .about("Deprecated form of propagationPolicy: true means Orphan, false means Background. The two options exclude each other."),
        optional("preconditions", Type::Optional("meta.Preconditions"))
            .about("Conditions that the object must meet. Otherwise the deletion fails with a conflict."),
        optional("propagationPolicy", Type::String)
            .about("Deletion of the objects that this object owns: Orphan keeps them, Background deletes them afterwards, Foreground deletes them first."),
    ]),
    part("meta.Preconditions", "Preconditions are conditions that an object must meet before an operation.").with(&[
        optional("resourceVersion", Type::String).about("Required version of the object."),
        optional("uid", Type::String).about("Required UID of the object."),
    ]),
    part("meta.Patch", "Patch is a change of an object. The content type of the request defines its format."),
    definition(Kind::Meta, "meta.Status", "Status is the result of a request that returns no other object.").with(&[
        API_VERSION,
        optional("code", Type::Int32).about("HTTP status code of the response."),
        optional("details", Type::Optional("meta.StatusDetails")).about("Details about the reason, for programs."),
        KIND,
        optional("message", Type::String).about("Description of the result, for people."),
        optional("metadata", Type::Value("meta.ListMeta")).about("Standard metadata of a list."),
        optional("reason", Type::String).about("Machine-readable reason of a failure, one word."),
        optional("status", Type::String).about("Success or Failure."),
    ]),
    part("meta.StatusDetails", "StatusDetails names the object and the causes of a failure.").with(&[
        merged("causes", Type::List("meta.StatusCause"), Merge::Atomic).about("Causes of the failure."),
        optional("group", Type::String).about("Group of the object."),
        optional("kind", Type::String).about("Kind or resource of the object."),
        optional("name", Type::String).about("Name of the object."),
        optional("retryAfterSeconds", Type::Int32).about("Time after which the client should retry, in seconds."),
        optional("uid", Type::String).about("UID of the object."),
    ]),
    part("meta.StatusCause", "StatusCause is one cause of a failure.").with(&[
        optional("field", Type::String)
            .about("Path of the field that caused the failure, such as spec.renewTime or items[0].name."),
        optional("message", Type::String).about("Description of the cause, for people."),
        optional("reason", Type::String).about("Machine-readable cause, one word."),
    ]),
    definition(Kind::Both, "meta.WatchEvent", "WatchEvent is one event of a watch.").with(&[
        required("object", Type::Optional("runtime.RawExtension"))
            .about("The object after the change. For DELETED, its last state. For BOOKMARK, an object with only a version. For ERROR, a Status."),
        required("type", Type::String).about("Type of the event: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."),
    ]),
    part("runtime.RawExtension", "RawExtension is an object of any kind."),
    definition(
        Kind::Meta,
        "meta.APIResourceList",
        "APIResourceList names the resources of one version of a group.",
    )
    .with(&[
        API_VERSION,
        required("groupVersion", Type::String).about("API group and version of the resources."),
        KIND,
        Property {
            presence: Required,
            ..merged("resources", Type::List("meta.APIResource"), Merge::Atomic).about("The resources.")
        },
    ]),
    part("meta.APIResource", "APIResource describes the names and the verbs of a resource.").with(&[
        merged("categories", Type::Strings, Merge::Atomic).about("Categories of the resource, such as all."),
        optional("group", Type::String).about("API group of the objects, if it differs from that of the list."),
        required("kind", Type::String).about("Kind of the objects."),
        required("name", Type::String).about("Plural name of the resource, which paths contain."),
        required("namespaced", Type::Boolean).about("Whether the objects are namespaced."),
        merged("shortNames", Type::Strings, Merge::Atomic).about("Short names of the resource for the command line."),
        required("singularName", Type::String).about("Singular name of the resource."),
        optional("storageVersionHash", Type::String).about("Opaque hash of the version in which objects are stored."),
        required("verbs", Type::Strings).about("Verbs that the resource supports."),
        optional("version", Type::String).about("API version of the objects, if it differs from that of the list."),
    ]),
];
