//! Server-side apply: merges an applied configuration into an object. A configuration is the body of the apply request.
//! An apply can change a field of another field manager only if it takes the field over. It does so with `force`, or as
//! `kubectl` after a client-side apply (structured-merge-diff `merge.Updater`, and the layers of apimachinery
//! `managedfields` around it).

use super::convert::lease_from_value;
use super::managers::{Manager, Managers, Unreadable, without_system_fields};
use super::path_element::PathElement;
use super::schema::{LEASE, with_named_fields};
use super::set::Set;
use super::typed::{compare, field_set, merge, remove, validate};
use super::update::Writer;
use super::{ManagedFields, Operation, track};
use crate::api_error::{ApiError, FieldManagerConflict};
use crate::go::json::json_quoted;
use crate::lease::Lease;
use crate::lease::validation::ANNOTATION_BYTES_MAX;
use crate::resource::{KIND, ResourceVersion, group_and_version};
use compact_str::CompactString;
use serde_json::{Value, json};

/// Field manager that gets all existing fields of an object without `managedFields`, at the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Field manager of `kubectl apply`. It may take over the fields that it set by client-side apply before.
const KUBECTL: &str = "kubectl";
/// Annotation with the last configuration that client-side apply has set.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Applies the configuration `config` to the object `live`. If `live` is `None`, creates an object. The resulting Lease
/// has the `resourceVersion` in `config`; without one, that of `live`. `json_of` encodes a Lease in the API version
/// `v1`.
///
/// # Errors
/// 400 if `config` is of another kind or contains `managedFields`. 409 if `config` changes fields that other managers
/// own, and `force` is not set. 500 if `config` does not match the schema of a Lease, or if the result is not a Lease.
pub fn apply(
    live: Option<(&Lease, ResourceVersion)>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
    json_of: impl FnOnce(&Lease, ResourceVersion) -> Vec<u8>,
) -> Result<Lease, ApiError> {
    let list = live.map_or(ManagedFields::ABSENT, |(live, _)| live.metadata.managed_fields.clone());
    check_kind(config, writer.api_version)?;
    let (live_value, list) = match live {
        None => (json!({"apiVersion": writer.api_version, "kind": KIND, "metadata": {}, "spec": {}}), list),
        Some((live, version)) => {
            let mut bare = live.clone();
            bare.metadata.managed_fields = ManagedFields::ABSENT;
            let value = lease_value(&json_of(&bare, version), writer.api_version)?;
            if list.entries().is_empty() {
                track(None, &mut bare, &Writer { manager: BEFORE_FIRST_APPLY, ..*writer });
            } else {
                bare.metadata.managed_fields = list;
            }
            (value, bare.metadata.managed_fields)
        }
    };
    let context = Context { live: &live_value, config, writer };
    let managers = Managers::read(&list).map_err(|Unreadable(message)| ApiError::Unclassified { message })?;
    if has_managed_fields(config) {
        return Err(ApiError::BadRequest { message: "metadata.managedFields must be nil".to_owned() });
    }
    let mut errors = Vec::new();
    validate(config, LEASE, "", &mut errors);
    if !errors.is_empty() {
        let message = format!("failed to create typed patch object ({}): {}", context.object(), listed(&errors));
        return Err(ApiError::Unclassified { message });
    }
    let outcome = context.merged(managers.clone(), force).or_else(|conflicts| {
        let refusal = |conflicts| Err(ApiError::ApplyConflict { conflicts });
        // `kubectl` may have used client-side apply before. It then takes over the fields that its last client-side
        // apply set, if no other manager has changed these fields since.
        let Some(allowed) = (writer.manager == KUBECTL).then(|| context.last_applied_set()).flatten() else {
            return refusal(conflicts.into_iter().map(Conflict::shown).collect());
        };
        let rest: Vec<_> = conflicts.into_iter().filter(|conflict| !allowed.has(&conflict.path)).collect();
        if rest.is_empty() {
            // An apply with `force` never has conflicts.
            context.merged(managers, true).or_else(|_| refusal(Vec::new()))
        } else {
            refusal(rest.into_iter().map(Conflict::shown).collect())
        }
    })?;
    // An unchanged object is returned without a conversion from JSON, since the conversion would make a zero time
    // absent.
    let unchanged = live.filter(|_| outcome.is_same).map(|(live, version)| {
        let mut lease = live.clone();
        lease.metadata.resource_version = version.to_string().into();
        Ok(lease)
    });
    let converted = || lease_from_value(&outcome.value).map(|conversion| conversion.lease);
    let mut lease = unchanged.unwrap_or_else(converted).map_err(|why| {
        let message = format!(
            "failed to convert new object ({}) to proper version: unable to convert unstructured object to {}, Kind={KIND}: {why}",
            context.object(),
            writer.api_version,
        );
        ApiError::Unclassified { message }
    })?;
    if writer.manager == KUBECTL {
        update_last_applied(&mut lease, config);
    }
    lease.metadata.managed_fields = outcome.managers.into_list();
    Ok(lease)
}

/// The inputs of one server-side apply: the live object, the configuration and the writer.
struct Context<'a> {
    live: &'a Value,
    config: &'a Value,
    writer: &'a Writer<'a>,
}

/// The result of a server-side apply.
struct Outcome {
    value: Value,
    /// Whether `value` equals the live object, so that the apply changes nothing.
    is_same: bool,
    managers: Managers,
}

/// A conflict about a field that the configuration changes and another manager owns.
struct Conflict {
    /// Identifier of the manager that owns the field.
    manager: Vec<u8>,
    words: String,
    path: Vec<PathElement>,
}

impl Conflict {
    fn shown(self) -> FieldManagerConflict {
        let field = self.path.iter().map(ToString::to_string).collect();
        FieldManagerConflict { manager: self.words, field }
    }
}

impl Context<'_> {
    /// Merges the configuration into the live object. Removes the fields that the manager's last apply contained, that
    /// this configuration does not contain, and that no other manager owns. Updates the ownership of all fields.
    fn merged(&self, mut managers: Managers, force: bool) -> Result<Outcome, Vec<Conflict>> {
        let set = field_set(self.config, LEASE);
        let applier = Manager::new(self.writer.name(), Operation::Apply, self.writer.api_version, set);
        let (own, last) = match managers.position(&applier.entry) {
            Some(at) => {
                let time = managers.0[at].entry.time;
                let last = std::mem::replace(&mut managers.0[at], applier);
                managers.0[at].entry.time = time;
                (at, Some(last.set))
            }
            None => {
                managers.0.push(applier);
                (managers.0.len() - 1, None)
            }
        };
        let merged = merge(Some(self.live), Some(self.config), LEASE).unwrap_or(Value::Null);
        let merged = match last.filter(|last| !last.is_empty()) {
            Some(last) => pruned(&merged, &last, &managers),
            None => merged,
        };
        let (_, comparison) = compare(Some(self.live), Some(&merged), LEASE);
        if !force {
            let conflicts = conflicts(&managers, own, &comparison.modified.union(&comparison.added));
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        managers.take_away(&comparison, Some(own));
        let applied = without_system_fields(&managers.0[own].set);
        managers.0[own].put(applied);
        if merged != *self.live {
            managers.0[own].entry.time = Some(self.writer.now);
        }
        managers.drop_empty();
        let is_same = merged == *self.live;
        Ok(Outcome { value: merged, is_same, managers })
    }

    /// Returns the fields that the last client-side apply set and that no manager has changed since. Returns `None` if
    /// the annotation [`LAST_APPLIED`] is missing, or is not a valid configuration in the API version of this apply.
    fn last_applied_set(&self) -> Option<Set> {
        let text = self.live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
        let last: Value = serde_json::from_str(text).ok()?;
        if last.get("apiVersion")?.as_str()? != self.writer.api_version {
            return None;
        }
        let mut errors = Vec::new();
        validate(self.live, LEASE, "", &mut errors);
        validate(&last, LEASE, "", &mut errors);
        if !errors.is_empty() {
            return None;
        }
        let (_, comparison) = compare(Some(&last), Some(self.live), LEASE);
        let set = field_set(&last, LEASE);
        Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
    }

    /// Returns the namespace, name and type of the configuration, as error messages show them.
    fn object(&self) -> String {
        let text = |name: &str| {
            self.config.get("metadata").and_then(|meta| meta.get(name)).and_then(Value::as_str).unwrap_or_default()
        };
        format!("{}/{}; {}, Kind={KIND}", text("namespace"), text("name"), self.writer.api_version)
    }
}

/// Returns `merged` without the fields that this apply removes. The manager owned these fields by its last apply, does
/// not apply them now, and no other manager owns them.
fn pruned(merged: &Value, last: &Set, managers: &Managers) -> Value {
    let named = |set: &Set| with_named_fields(set, Some(LEASE));
    let set_of = |value: &Value| named(&field_set(value, LEASE));
    let last = named(last);
    let owned = Set::union_of(&managers.0.iter().map(|manager| &manager.set).collect::<Vec<_>>());
    let all = set_of(merged);
    // Each of the three values is `merged` without some fields. `bare` lacks all fields of the manager's last apply,
    // with their nested fields. `kept` lacks fewer fields: it has those that some manager owns. The result also has the
    // fields that the manager's last apply did not contain.
    let bare = remove(merged, &last, LEASE);
    let kept = remove(merged, &all.difference(&set_of(&bare).union(&named(&owned))), LEASE);
    remove(merged, &all.difference(&set_of(&kept)).intersection(&last), LEASE)
}

/// Returns a conflict for each field in `changed` that a manager other than `own` owns, sorted by manager.
fn conflicts(managers: &Managers, own: usize, changed: &Set) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for (at, manager) in managers.0.iter().enumerate() {
        if at == own {
            continue;
        }
        let entry = &manager.entry;
        let mut words = crate::go::quote::go_quoted(&entry.manager);
        if !entry.subresource.is_empty() {
            words = format!("{words} with subresource {}", crate::go::quote::go_quoted(&entry.subresource));
        }
        if entry.operation == Operation::Update {
            words = format!("{words} using {}", entry.api_version);
        }
        manager.set.intersection(changed).for_each(&mut |path| {
            conflicts.push(Conflict { manager: manager.identifier(), words: words.clone(), path: path.to_vec() });
        });
    }
    // The sort is stable, so the order of the fields of one manager does not change.
    conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
    conflicts
}

/// Checks that the configuration is a Lease in the API version of the request's path.
fn check_kind(config: &Value, api_version: &str) -> Result<(), ApiError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (found, kind) = (text("apiVersion"), text("kind"));
    if (found, kind) == (api_version, KIND) {
        return Ok(());
    }
    let (group, version, kind) =
        group_and_version(found).map_or(("", "", ""), |(group, version)| (group, version, kind));
    Err(ApiError::BadRequest { message: format!("invalid object type: {group}/{version}, Kind={kind}") })
}

/// Whether the configuration contains `managedFields`, even an empty list. For a value that is not a list of objects,
/// returns `false`: the validation checks such a value.
fn has_managed_fields(config: &Value) -> bool {
    let list = config.get("metadata").and_then(|meta| meta.get("managedFields")).and_then(Value::as_array);
    list.is_some_and(|entries| entries.iter().all(Value::is_object))
}

/// Parses the JSON of a stored Lease to a value, and sets its `apiVersion` to `api_version`.
fn lease_value(json: &[u8], api_version: &str) -> Result<Value, ApiError> {
    let mut value: Value =
        serde_json::from_slice(json).map_err(|error| ApiError::Unclassified { message: error.to_string() })?;
    value["apiVersion"] = api_version.into();
    Ok(value)
}

/// Joins error messages to one message, as structured-merge-diff does.
fn listed(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        all => format!("errors:\n  {}", all.join("\n  ")),
    }
}

/// Updates the annotation [`LAST_APPLIED`] to `config`, for clients that still use client-side apply. Does not add the
/// annotation if it is missing. Removes the annotation if the annotations would otherwise be too large.
fn update_last_applied(lease: &mut Lease, config: &Value) {
    let annotations = &lease.metadata.annotations;
    if annotations.value(LAST_APPLIED).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    // kube-apiserver decodes the annotations of the configuration to a map of strings, and encodes this map again. So a
    // value `null` becomes an empty string, and a map `null` is removed.
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        match metadata.get_mut("annotations") {
            Some(Value::Object(own)) => {
                own.remove(LAST_APPLIED);
                own.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
            }
            _ => _ = metadata.remove("annotations"),
        }
    }
    let text = go_json(&config) + "\n";
    let others = || annotations.iter().filter(|(key, _)| *key != LAST_APPLIED);
    let bytes: usize = others().map(|(key, value)| key.len() + value.len()).sum();
    let owned = |(key, value): (&str, &str)| (CompactString::new(key), CompactString::new(value));
    let last = (CompactString::const_new(LAST_APPLIED), CompactString::new(&text));
    let fits = bytes + LAST_APPLIED.len() + text.len() <= ANNOTATION_BYTES_MAX;
    lease.metadata.annotations = others().map(owned).chain(fits.then_some(last)).collect();
}

/// Formats a JSON value as Go's encoder does. The recursion is limited, since the validation limits the depth of the
/// value.
fn go_json(value: &Value) -> String {
    match value {
        Value::String(text) => json_quoted(text),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| format!("{}:{}", json_quoted(name), go_json(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Array(elements) => format!("[{}]", elements.iter().map(go_json).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
