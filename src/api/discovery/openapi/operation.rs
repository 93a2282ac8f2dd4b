//! The operations on Leases: their paths, methods and parameters.

use super::Dialect;
use super::definition::{GRACE_PERIOD_TEXT, IGNORE_READ_ERROR_TEXT};
use super::schema::reference;
use crate::api_error::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH};
use crate::resource::{ApiVersion, GROUP, KIND};
use serde_json::{Map, Value, json};

/// A path below `/apis/coordination.k8s.io/{version}`.
struct Path {
    suffix: &'static str,
    /// Parameters that every operation on the path has.
    parameters: &'static [Parameter],
    operations: &'static [Operation],
}

struct Operation {
    method: &'static str,
    /// Value of `x-kubernetes-action`; `None` for the operation that lists the resources of the API version.
    action: Option<&'static str>,
    /// Operation id. The text `{V}` in it stands for the API version.
    id: &'static str,
    description: &'static str,
    parameters: &'static [Parameter],
    body: Body,
    /// Status codes of successful responses.
    success: &'static [u16],
    /// Name of the schema of the response's body.
    gives: &'static str,
    /// Whether the response may be a stream of watch events.
    streams: bool,
}

/// The body of a request.
#[derive(Clone, Copy)]
enum Body {
    None,
    /// An optional body. The string is the name of the body's schema.
    Optional(&'static str),
    Patch,
    Required(&'static str),
}

struct Parameter {
    name: &'static str,
    /// Place of the parameter in the request: `path` or `query`.
    place: &'static str,
    /// JSON type of the value, such as `string`.
    kind: &'static str,
    description: &'static str,
}

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, place: "query", kind, description: "" }
}

const fn path(name: &'static str) -> Parameter {
    Parameter { place: "path", ..query(name, "string") }
}

impl Parameter {
    /// Returns this parameter with a description. Every parameter needs one.
    const fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }
}

const NAME: Parameter = path("name").about("Name of the Lease.");
const NAMESPACE: Parameter = path("namespace").about("Namespace of the Lease.");
const PRETTY: Parameter = query("pretty", "string").about("Whether the response is indented JSON.");

const ALLOW_WATCH_BOOKMARKS: Parameter = query("allowWatchBookmarks", "boolean")
    .about("Whether a watch may contain BOOKMARK events, which report its current version.");
const CONTINUE: Parameter = query("continue", "string")
    .about("Token from the previous page. The selectors must be the same as for that page. Excludes resourceVersion and resourceVersionMatch.");
const DRY_RUN: Parameter =
    query("dryRun", "string").about("With All, the server checks the request but changes nothing.");
const FIELD_MANAGER: Parameter =
    query("fieldManager", "string").about("Name of the manager for managedFields. At most 128 characters.");
const FIELD_SELECTOR: Parameter =
    query("fieldSelector", "string").about("Selects objects by metadata.name and metadata.namespace.");
const FIELD_VALIDATION: Parameter = query("fieldValidation", "string")
    .about("Handling of unknown and duplicate fields. Ignore drops them, Warn drops them with a warning, Strict refuses the request.");
const FORCE: Parameter =
    query("force", "boolean").about("Whether an apply patch takes over fields that other managers own.");
const GRACE_PERIOD_SECONDS: Parameter = query("gracePeriodSeconds", "integer").about(GRACE_PERIOD_TEXT);
const IGNORE_READ_ERROR: Parameter =
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean").about(IGNORE_READ_ERROR_TEXT);
const LABEL_SELECTOR: Parameter = query("labelSelector", "string").about("Selects objects by their labels.");
const LIMIT: Parameter = query("limit", "integer").about("Maximum number of items on a page; 0 means no limit.");
const ORPHAN_DEPENDENTS: Parameter = query("orphanDependents", "boolean")
    .about("Deprecated form of propagationPolicy: true means Orphan, false means Background.");
const PROPAGATION_POLICY: Parameter = query("propagationPolicy", "string")
    .about("Deletion of the objects that this object owns: Orphan, Background or Foreground.");
const RESOURCE_VERSION: Parameter =
    query("resourceVersion", "string").about("Requested version, which resourceVersionMatch interprets.");
const RESOURCE_VERSION_MATCH: Parameter = query("resourceVersionMatch", "string")
    .about("Exact requests that version, NotOlderThan requests that version or a newer one.");
const SEND_INITIAL_EVENTS: Parameter = query("sendInitialEvents", "boolean")
    .about("Whether a watch starts with ADDED events of all existing objects. With allowWatchBookmarks, a bookmark follows them.");
const SHARD_SELECTOR: Parameter = query("shardSelector", "string").about(
    "Selects objects by hash ranges of their UIDs or namespaces. Alpha, requires the feature gate ShardedListAndWatch.",
);
const TIMEOUT_SECONDS: Parameter =
    query("timeoutSeconds", "integer").about("Maximum duration of a watch, in seconds. No effect on lists.");
const WATCH: Parameter = query("watch", "boolean").about("Whether the request is a watch instead of a list.");

const LIST_PARAMETERS: &[Parameter] = &[
    ALLOW_WATCH_BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    SHARD_SELECTOR,
    TIMEOUT_SECONDS,
    WATCH,
];

/// Returns an operation whose request has neither parameters nor a body, and whose response is a Lease.
const fn operation(method: &'static str, action: &'static str, id: &'static str) -> Operation {
    Operation {
        method,
        action: Some(action),
        id,
        description: "",
        parameters: &[],
        body: Body::None,
        success: &[200],
        gives: "coordination.Lease",
        streams: false,
    }
}

/// Returns the GET operation of a path below `/watch/`. Such a path has only this operation.
const fn watch(action: &'static str, id: &'static str) -> Operation {
    let get = operation("get", action, id);
    Operation { parameters: LIST_PARAMETERS, gives: "meta.WatchEvent", streams: true, ..get }
}

/// Returns the GET operation that lists or watches the Leases of a path.
const fn list(id: &'static str) -> Operation {
    Operation { gives: "coordination.LeaseList", ..watch("list", id) }
}

const PATHS: &[Path] = &[
    Path {
        suffix: "/watch/leases",
        parameters: &[PRETTY],
        operations: &[watch("watchlist", "watchCoordination{V}LeaseListForAllNamespaces")
            .about("Watches the Leases of all namespaces. Deprecated: list them with the watch parameter.")],
    },
    Path {
        suffix: "/watch/namespaces/{namespace}/leases",
        parameters: &[NAMESPACE, PRETTY],
        operations: &[watch("watchlist", "watchCoordination{V}NamespacedLeaseList")
            .about("Watches the Leases of one namespace. Deprecated: list them with the watch parameter.")],
    },
    Path {
        suffix: "/watch/namespaces/{namespace}/leases/{name}",
        parameters: &[NAME, NAMESPACE, PRETTY],
        operations: &[watch("watch", "watchCoordination{V}NamespacedLease")
            .about("Watches one Lease. Deprecated: list it with the watch parameter and a field selector.")],
    },
    Path {
        suffix: "/",
        parameters: &[],
        operations: &[Operation {
            action: None,
            gives: "meta.APIResourceList",
            ..operation("get", "", "getCoordination{V}APIResources").about("Lists the resources of this API version.")
        }],
    },
    Path {
        suffix: "/leases",
        parameters: &[PRETTY],
        operations: &[
            list("listCoordination{V}LeaseForAllNamespaces").about("Lists or watches the Leases of all namespaces.")
        ],
    },
    Path {
        suffix: "/namespaces/{namespace}/leases",
        parameters: &[NAMESPACE, PRETTY],
        operations: &[
            list("listCoordination{V}NamespacedLease").about("Lists or watches the Leases of one namespace."),
            Operation {
                parameters: &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
                body: Body::Required("coordination.Lease"),
                success: &[200, 201, 202],
                ..operation("post", "post", "createCoordination{V}NamespacedLease").about("Creates a Lease.")
            },
            Operation {
                parameters: &[
                    CONTINUE,
                    DRY_RUN,
                    FIELD_SELECTOR,
                    GRACE_PERIOD_SECONDS,
                    IGNORE_READ_ERROR,
                    LABEL_SELECTOR,
                    LIMIT,
                    ORPHAN_DEPENDENTS,
                    PROPAGATION_POLICY,
                    RESOURCE_VERSION,
                    RESOURCE_VERSION_MATCH,
                    SEND_INITIAL_EVENTS,
                    SHARD_SELECTOR,
                    TIMEOUT_SECONDS,
                ],
                body: Body::Optional("meta.DeleteOptions"),
                gives: "meta.Status",
                ..operation("delete", "deletecollection", "deleteCoordination{V}CollectionNamespacedLease")
                    .about("Deletes all or the selected Leases of one namespace.")
            },
        ],
    },
    Path {
        suffix: "/namespaces/{namespace}/leases/{name}",
        parameters: &[NAME, NAMESPACE, PRETTY],
        operations: &[
            operation("get", "get", "readCoordination{V}NamespacedLease").about("Reads a Lease."),
            Operation {
                parameters: &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
                body: Body::Required("coordination.Lease"),
                success: &[200, 201],
                ..operation("put", "put", "replaceCoordination{V}NamespacedLease")
                    .about("Replaces a Lease, or creates it.")
            },
            Operation {
                parameters: &[DRY_RUN, GRACE_PERIOD_SECONDS, IGNORE_READ_ERROR, ORPHAN_DEPENDENTS, PROPAGATION_POLICY],
                body: Body::Optional("meta.DeleteOptions"),
                success: &[200, 202],
                gives: "meta.Status",
                ..operation("delete", "delete", "deleteCoordination{V}NamespacedLease").about("Deletes a Lease.")
            },
            Operation {
                parameters: &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE],
                body: Body::Patch,
                success: &[200, 201],
                ..operation("patch", "patch", "patchCoordination{V}NamespacedLease").about("Patches a Lease.")
            },
        ],
    },
];

const MEDIA_TYPES: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
const STREAM_MEDIA_TYPES: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const PATCH_MEDIA_TYPES: [&str; 4] = [APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH];

/// Adds all paths of one API version to the paths of an OpenAPI document.
pub(super) fn add(to: &mut Map<String, Value>, version: ApiVersion, dialect: Dialect) {
    for path in PATHS {
        let mut item = Map::new();
        for operation in path.operations {
            item.insert(operation.method.to_owned(), operation.value(version, dialect));
        }
        if !path.parameters.is_empty() {
            item.insert("parameters".into(), parameters(path.parameters, dialect));
        }
        to.insert(format!("/apis/{}{}", version.group_version(), path.suffix), item.into());
    }
}

impl Operation {
    /// Returns this operation with a description. Every operation needs one.
    const fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    fn value(&self, version: ApiVersion, dialect: Dialect) -> Value {
        let mut value = json!({
            "tags": [format!("coordination_{}", version.name())],
            "description": self.description,
            "operationId": self.id.replace("{V}", &capitalized(version.name())),
            "responses": self.responses(version, dialect),
        });
        if let Some(action) = self.action {
            value["x-kubernetes-action"] = action.into();
            value["x-kubernetes-group-version-kind"] = json!({"group": GROUP, "version": version.name(), "kind": KIND});
        }
        let mut all = parameters(self.parameters, dialect);
        match dialect {
            Dialect::V2 => {
                value["schemes"] = json!(["https"]);
                value["consumes"] = self.body.media_types().into();
                value["produces"] = self.media_types().into();
                if let (Some((name, is_required)), Value::Array(all)) = (self.body.schema(), &mut all) {
                    let schema = reference(name, version, dialect);
                    all.push(json!({"name": "body", "in": "body", "required": is_required, "schema": schema}));
                }
            }
            Dialect::V3 => {
                if let Some((name, is_required)) = self.body.schema() {
                    let content = content(&self.body.media_types(), name, version);
                    value["requestBody"] = json!({"content": content, "required": is_required});
                }
            }
        }
        if all.as_array().is_some_and(|all| !all.is_empty()) {
            value["parameters"] = all;
        }
        value
    }

    fn responses(&self, version: ApiVersion, dialect: Dialect) -> Value {
        let mut responses = Map::new();
        for status in self.success {
            let mut response = json!({"description": crate::http::reason_phrase(*status)});
            match dialect {
                Dialect::V2 => response["schema"] = reference(self.gives, version, dialect),
                Dialect::V3 => response["content"] = content(&self.media_types(), self.gives, version),
            }
            responses.insert(status.to_string(), response);
        }
        responses.insert("401".into(), json!({"description": crate::http::reason_phrase(401)}));
        responses.into()
    }

    /// Returns the media types that the response may have.
    fn media_types(&self) -> Vec<&'static str> {
        let streams: &[_] = if self.streams { &STREAM_MEDIA_TYPES } else { &[] };
        [&MEDIA_TYPES, streams].concat()
    }
}

impl Body {
    fn media_types(self) -> Vec<&'static str> {
        match self {
            Self::Patch => PATCH_MEDIA_TYPES.to_vec(),
            Self::None | Self::Optional(_) | Self::Required(_) => vec!["*/*"],
        }
    }

    /// Returns the name of the body's schema, and whether the body is required.
    fn schema(self) -> Option<(&'static str, bool)> {
        match self {
            Self::None => None,
            Self::Optional(name) => Some((name, false)),
            Self::Patch => Some(("meta.Patch", true)),
            Self::Required(name) => Some((name, true)),
        }
    }
}

/// Returns the `content` object of OpenAPI 3.0. All media types have the same schema.
fn content(media_types: &[&str], schema: &str, version: ApiVersion) -> Value {
    let schema = json!({"schema": reference(schema, version, Dialect::V3)});
    media_types.iter().map(|media_type| ((*media_type).to_owned(), schema.clone())).collect()
}

fn parameters(parameters: &[Parameter], dialect: Dialect) -> Value {
    let value = |parameter: &Parameter| {
        let Parameter { name, place, kind, description } = parameter;
        let mut value = json!({"name": name, "in": place, "description": description});
        match dialect {
            Dialect::V2 => {
                value["type"] = (*kind).into();
                value["uniqueItems"] = true.into();
            }
            Dialect::V3 => value["schema"] = json!({"type": kind, "uniqueItems": true}),
        }
        if *place == "path" {
            value["required"] = true.into();
        }
        value
    };
    parameters.iter().map(value).collect()
}

/// Capitalizes the name of a version: `v1` becomes `V1`.
fn capitalized(version: &str) -> String {
    let mut characters = version.chars();
    characters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + characters.as_str())
}
