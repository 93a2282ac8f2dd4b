//! The verbs create and update. This module also converts the result of a create, an update or a patch to a change of
//! the table.

use super::answer::Answer;
use super::key::{check_key, check_name, take_namespace};
use super::negotiate::{format_of_body, json_of_yaml};
use super::reclaim::is_lock;
use super::waiting::Until;
use super::warnings::Warnings;
use super::{Api, Call, Verdict, object_response};
use crate::api_error::{ApiError, FieldError, InvalidSubject};
use crate::auth::authorize_create;
use crate::clock::Now;
use crate::codec::json::other_version;
use crate::codec::protobuf::{self, lease_len, lease_len_max};
use crate::codec::unrecognized;
use crate::codec::{FieldWarnings, Format};
use crate::form::{Form, LeaseState, Response};
use crate::lease::managed_fields::{ManagedFields, Writer, manager_of_user_agent, settle_times, track};
use crate::lease::strategy::{
    self, generated_name, is_finalized_by_update, prepare_for_create, prepare_for_update, wipe_system_fields,
};
use crate::lease::validation::{entry_count, validate_create, validate_entry_count, validate_update};
use crate::lease::{Lease, ObjectMeta};
use crate::limits::{NAMESPACE_WAIT_MS, OBJECT_BYTES_MAX, OBJECT_BYTES_SENT_MAX};
use crate::options::{FieldValidation, WriteOptions, parse_object_resource_version};
use crate::resource::{ApiVersion, ResourceVersion};
use crate::table::change::Change;
use crate::table::{QuotaExceeded, Slot, Table};
use compact_str::CompactString;
use uuid::Uuid;

/// Maximum number of random names that the server tries for one creation with `generateName`.
const GENERATED_NAMES_MAX: usize = 8;

impl Api {
    /// Decides the creation of a Lease by POST.
    pub(super) fn decide_create(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        namespace: &str,
    ) -> Result<Verdict, ApiError> {
        let form = call.form(false)?;
        format_of_body(call.head)?;
        let options = WriteOptions::parse(&call.query, "CreateOptions")?;
        let mut lease = self.decode_lease(call, &options)?;
        // The server clears the system fields (such as `uid`) before `track` records the client's fields in
        // `managedFields`.
        wipe_system_fields(&mut lease.metadata);
        take_namespace(&mut lease.metadata, namespace)?;
        authorize_create(call.caller, namespace, &lease.metadata.name, &lease.metadata.generate_name)?;
        drop_repeated_owners(&call.warnings, &mut lease.metadata, REPEATED_OWNERS);
        track(None, &mut lease, &writer(call, &options, &mut CompactString::default()));
        self.make_creation(table, lease, &Write::new(call, WriteKind::Create, &options, form))
    }

    /// Decides an update of a Lease by PUT. A PUT to a name without a Lease is a creation.
    pub(super) fn decide_update(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Verdict, ApiError> {
        let form = call.form(false)?;
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        if let Some(renewal) = self.decide_renewal(table, call, (namespace, name), &options, form) {
            return Ok(renewal);
        }
        let mut lease = self.decode_lease(call, &options)?;
        take_namespace(&mut lease.metadata, namespace)?;
        check_name(&lease.metadata, name)?;
        drop_repeated_owners(&call.warnings, &mut lease.metadata, REPEATED_OWNERS);

        check_key(namespace, name)?;
        // A UID identifies a Lease even if a later Lease has the same name. The server refuses an update with a UID
        // that is not that of the current Lease. Kubelets rely on this error: they then create the Lease again.
        let found = table.find(namespace, name);
        let found_uid = found.map_or("", |(_, object)| object.metadata().uid.as_str());
        if !lease.metadata.uid.is_empty() && lease.metadata.uid != found_uid {
            if self.handover.imports_built_in() {
                return Err(ApiError::HandingOver);
            }
            if !options.dry_run && found.is_none_or(|(_, object)| !is_lock(object.unrenewed())) {
                self.reclaim.claim(&lease, call.now.ms);
            }
            return Err(ApiError::UidMismatch {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                requested: lease.metadata.uid.to_string(),
                found: found_uid.to_owned(),
                dry_run: options.dry_run,
            });
        }
        let live = found.map(|(_, object)| object.lease());
        track(live.as_deref(), &mut lease, &writer(call, &options, &mut CompactString::default()));
        match live {
            None => {
                parse_object_resource_version(&lease.metadata.resource_version)?;
                self.make_creation(table, lease, &Write::new(call, WriteKind::Update, &options, form))
            }
            Some(_) => self.make_replacement(table, lease, name, &Write::new(call, WriteKind::Update, &options, form)),
        }
    }

    /// Decodes the Lease in a body of any format. Like kube-apiserver, reports a wrong API version of the Lease only
    /// after unknown and repeated fields.
    fn decode_lease(&mut self, call: &Call<'_>, options: &WriteOptions) -> Result<Lease, ApiError> {
        let body = call.body;
        let decoded = match format_of_body(call.head)? {
            Format::Json => self.decoder.decode_lease(body, call.version)?,
            Format::Yaml => {
                let (json, duplicates) = json_of_yaml(body, |words| unrecognized(words, body))?;
                let mut decoded = self.decoder.decode_lease_of(&json, body, call.version)?;
                decoded.warnings.put_yaml_first(duplicates);
                decoded
            }
            Format::Protobuf => protobuf::decode_lease(body, call.version)?,
        };
        strictness(call, options, decoded.version, &decoded.warnings)?;
        if decoded.version != call.version {
            return Err(other_version(decoded.version, call.version));
        }
        valid(&decoded.lease.metadata.name, validate_entry_count(decoded.entries))?;
        Ok(decoded.lease)
    }

    /// Makes the change that creates a Lease. The caller has checked the number of metadata entries
    /// ([`check_entries`]). Generates the name if the client sets only `generateName`. A creation by PUT or by a
    /// server-side apply ignores the client's `resourceVersion`.
    pub(super) fn make_creation(
        &mut self,
        table: &mut Table,
        mut lease: Lease,
        write: &Write<'_>,
    ) -> Result<Verdict, ApiError> {
        // Admission accepts an empty namespace. Validation then refuses the empty namespace.
        if !lease.metadata.namespace.is_empty() {
            match self.namespaces.admit_create(&lease.metadata.namespace, shown_name(&lease.metadata)) {
                Err(ApiError::NamespaceNotFound { .. }) if write.may_wait => {
                    return Ok(Verdict::Wait(Until::NamespaceIsKnown(lease.metadata.namespace)));
                }
                admitted => admitted?,
            }
        }
        // This warning comes after admission: if admission refuses the Lease, kube-apiserver does not send it. The
        // warning about the body of the request came earlier.
        drop_repeated_owners(write.warnings, &mut lease.metadata, REPEATED_OWNERS_AT_LAST);
        let named_version = Some(lease.metadata.resource_version.as_str()).filter(|text| !text.is_empty());
        let named_version =
            named_version.and_then(|text| parse_object_resource_version(text).ok()).map(ResourceVersion);
        let mut uid = Uuid::encode_buffer();
        let uid = self.new_uid().hyphenated().encode_lower(&mut uid);
        prepare_for_create(&mut lease, CompactString::from(&*uid), write.now.wall);
        let is_generated = !lease.metadata.generate_name.is_empty();
        let wants_name = is_generated && lease.metadata.name.is_empty();
        let mut attempts_left = if wants_name { GENERATED_NAMES_MAX } else { 1 };
        loop {
            attempts_left -= 1;
            if wants_name {
                lease.metadata.name = generated_name(&lease.metadata.generate_name, &mut self.rng);
            }
            valid(&lease.metadata.name, validate_create(&lease))?;
            let dry_run = write.options.dry_run;
            if !dry_run && write.kind == WriteKind::Create && named_version.is_some_and(|version| version.0 != 0) {
                let message = "resourceVersion should not be set on objects to be created".into();
                return Err(ApiError::Unclassified { message });
            }
            if let Some((_, there)) = table.find(&lease.metadata.namespace, &lease.metadata.name) {
                if attempts_left > 0 {
                    continue;
                }
                let being_deleted = there.is_being_deleted();
                // If the client sets `generateName`, the error is that of a generated name, even if the client also
                // sets `name` (apiserver `registry/rest/create.go`, `CheckGeneratedNameError`).
                return Err(ApiError::AlreadyExists {
                    name: lease.metadata.name.to_string(),
                    being_deleted,
                    is_generated,
                });
            }
            self.check_reservation(None, &lease, write)?;
            self.check_quota(table, None, &lease)?;
            if !self.storage.takes_creations() {
                return Err(ApiError::InsufficientStorage);
            }
            if dry_run {
                // The response to a dry run contains the client's `resourceVersion`, since kube-apiserver removes it
                // only when it stores a Lease.
                return write.reply(201, LeaseState::Loose(&lease, named_version));
            }
            fit_size(&mut lease, write.kind)?;
            check_long_write(table, None, &lease)?;
            return Ok(Verdict::Write(Change::Create(Box::new(lease)), write.answer(201)));
        }
    }

    /// Makes the change that replaces a Lease. The caller has checked the number of metadata entries
    /// ([`check_entries`]). The `resourceVersion` in `lease` must be that of the current Lease.
    pub(super) fn make_replacement(
        &mut self,
        table: &mut Table,
        mut lease: Lease,
        name: &str,
        write: &Write<'_>,
    ) -> Result<Verdict, ApiError> {
        drop_repeated_owners(write.warnings, &mut lease.metadata, REPEATED_OWNERS_AT_LAST);
        let Some((slot, current)) = table.find(&lease.metadata.namespace, name) else {
            return Err(ApiError::NotFound { name: name.to_owned() });
        };
        match parse_object_resource_version(&lease.metadata.resource_version)? {
            0 => {
                let cause =
                    FieldError::invalid_unquoted("metadata.resourceVersion", 0, "must be specified for an update");
                return Err(ApiError::Invalid {
                    subject: InvalidSubject::Resource,
                    name: name.to_owned(),
                    causes: vec![cause],
                });
            }
            version if !current.is_at(version) => return Err(self.handover.refuse_version(name, current, version)),
            _ => {}
        }
        let live = current.lease();
        prepare_for_update(&mut lease, &live);
        valid(name, validate_update(&lease, &live))?;
        lease.metadata.resource_version = CompactString::default();
        settle_times(&live, &mut lease);

        let dry_run = write.options.dry_run;
        if is_finalized_by_update(&lease.metadata, &live.metadata) {
            let response = write.response(200, LeaseState::Loose(&lease, Some(current.version)));
            if dry_run {
                return response.map(Verdict::response);
            }
            return Ok(Verdict::Write(Change::Delete(table.target(slot)), Answer::prepared(response)));
        }
        self.check_reservation(Some(&*live), &lease, write)?;
        self.check_quota(table, Some(slot), &lease)?;
        if dry_run {
            return write.reply(200, LeaseState::Loose(&lease, Some(current.version)));
        }
        // Like kube-apiserver, the server removes `selfLink` only when it stores the Lease. So the response to a dry
        // run still contains it.
        lease.metadata.self_link = CompactString::default();
        let mut is_same = lease == *live;
        if !is_same && fit_size(&mut lease, write.kind)? {
            is_same = lease == *live;
        }
        // An unchanged Lease is not written. So its `resourceVersion` does not change, and watchers get no event.
        if is_same {
            return write.reply(200, LeaseState::Stored(current));
        }
        check_long_write(table, Some(slot), &lease)?;
        Ok(Verdict::Write(Change::Replace(table.target(slot), Box::new(lease)), write.answer(200)))
    }

    /// Refuses `lease` while its lock is reserved ([`Reclaim`](super::Reclaim)): a client that acquired the lock before
    /// this server started may still hold the lock. `live` is the current Lease. If `live` has a holder or a
    /// `renewTime`, this server knows the last holder, and the lock is not reserved.
    fn check_reservation(&mut self, live: Option<&Lease>, lease: &Lease, write: &Write<'_>) -> Result<(), ApiError> {
        if live.is_some_and(|live| is_lock(live) || live.spec.renew_time.is_some()) {
            return Ok(());
        }
        if !write.options.dry_run {
            self.reclaim.note_request(lease, write.now.ms);
        }
        self.reclaim.check_reservation(lease, write.now.ms)
    }

    /// Refuses a Lease whose bytes would exceed the quota (`--lease-quota-bytes`). The message is that of
    /// kube-apiserver's admission plugin ResourceQuota.
    fn check_quota(&self, table: &Table, slot: Option<Slot>, lease: &Lease) -> Result<(), ApiError> {
        let reserved = self.storage.reserved(&lease.metadata.namespace);
        let checked = table.check_quota(slot, lease, reserved);
        checked.map_err(|QuotaExceeded { requested, used, limited }| ApiError::Forbidden {
            name: lease.metadata.name.to_string(),
            message: format!(
                "exceeded quota: lease-quota-bytes, requested: bytes={requested}, used: bytes={used}, limited: bytes={limited}"
            ),
        })
    }
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    /// A creation by POST.
    Create,
    /// An update by PUT or by a patch other than an apply. A PUT may create a Lease.
    Update,
    /// A server-side apply. It may create a Lease.
    Apply,
}

/// The kind and the options of a write, and the form of its response.
pub(super) struct Write<'w> {
    pub(super) now: Now,
    pub(super) kind: WriteKind,
    pub(super) options: &'w WriteOptions,
    pub(super) form: Form,
    /// Whether a creation may still wait for the cluster to report the namespace to this server.
    pub(super) may_wait: bool,
    pub(super) warnings: &'w Warnings,
    /// Error about the requested form of the response. The client gets this error after the write is applied.
    pub(super) answer_refused: Option<ApiError>,
}

impl<'w> Write<'w> {
    /// Creates the write for the request `call`.
    pub(super) fn new(call: &'w Call<'_>, kind: WriteKind, options: &'w WriteOptions, form: Form) -> Self {
        Self {
            now: call.now,
            kind,
            options,
            form,
            may_wait: call.now.ms < call.retry.since_ms.saturating_add(NAMESPACE_WAIT_MS),
            warnings: &call.warnings,
            answer_refused: call.check_options_of(form).err(),
        }
    }

    /// Returns the response that shows the Lease after the write.
    fn answer(&self, status: u16) -> Answer {
        Answer::applied(status, self.form, self.answer_refused.clone().map_or(Ok(()), Err))
    }

    /// Returns the response that shows the Lease `state`.
    fn response(&self, status: u16, state: LeaseState<'_>) -> Result<Response, ApiError> {
        self.answer_refused.clone().map_or(Ok(()), Err)?;
        object_response(status, state, self.form, self.now)
    }

    /// Returns the response to a write that changes nothing.
    fn reply(&self, status: u16, state: LeaseState<'_>) -> Result<Verdict, ApiError> {
        self.response(status, state).map(Verdict::response)
    }
}

/// Handles unknown and repeated fields in the body as `fieldValidation` demands: returns an error, adds warnings, or
/// does nothing. `version` is the API version of the Lease in the body.
fn strictness(
    call: &Call<'_>,
    options: &WriteOptions,
    version: ApiVersion,
    found: &FieldWarnings,
) -> Result<(), ApiError> {
    if found.is_empty() {
        return Ok(());
    }
    match options.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Strict => return found.strict_error(version).map_or(Ok(()), Err),
        FieldValidation::Warn => found.messages().for_each(|message| call.warnings.add(message)),
    }
    Ok(())
}

/// Returns the writer that `managedFields` records for the request. The name of its field manager is `fieldManager` in
/// the request. Without `fieldManager`, the function derives the name from the user agent, and stores the name in
/// `made_up`.
pub(super) fn writer<'c>(call: &Call<'_>, options: &'c WriteOptions, made_up: &'c mut CompactString) -> Writer<'c> {
    let mut manager = options.field_manager.as_str();
    if manager.is_empty() {
        *made_up = manager_of_user_agent(call.head.user_agent.unwrap_or_default());
        manager = made_up;
    }
    Writer { manager, api_version: call.version.group_version(), now: call.now.wall }
}

/// Removes each owner reference that repeats an earlier one, and adds a warning that begins with `words`.
fn drop_repeated_owners(warnings: &Warnings, meta: &mut ObjectMeta, words: &str) {
    let repeated = strategy::drop_repeated_owners(&mut meta.owner_references);
    if !repeated.is_empty() {
        let uids: Vec<_> = repeated.iter().take(REPEATED_OWNERS_SHOWN_MAX).map(CompactString::as_str).collect();
        warnings.add(&format!(
            "{words}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            uids.join(", ")
        ));
    }
}

/// Start of the warning about repeated owner references in the body of the request.
const REPEATED_OWNERS: &str = ".metadata.ownerReferences contains duplicate entries";
/// Start of the warning about repeated owner references in the result of a patch.
const REPEATED_OWNERS_AT_LAST: &str =
    ".metadata.ownerReferences contains duplicate entries after mutating admission happens";
/// Maximum number of UIDs in the warning about repeated owner references.
const REPEATED_OWNERS_SHOWN_MAX: usize = 64;

/// Returns the name of a new object, as kube-apiserver's admission plugins show it in messages.
fn shown_name(meta: &ObjectMeta) -> &str {
    [&meta.name, &meta.generate_name].into_iter().find(|name| !name.is_empty()).map_or("Unknown", CompactString::as_str)
}

/// Checks the number of metadata entries, such as labels, before each entry is validated.
pub(super) fn check_entries(meta: &ObjectMeta) -> Result<(), ApiError> {
    valid(&meta.name, validate_entry_count(entry_count(meta)))
}

/// Checks that a Lease is small enough for the store. If the Lease is too large, removes its `managedFields`, except in
/// an apply (apiserver `endpoints/handlers`, `isTooLargeError`). Returns whether `managedFields` were removed.
///
/// # Errors
/// 500 if the Lease is too large. In an apply, its `managedFields` count; in any other write, they do not.
fn fit_size(lease: &mut Lease, kind: WriteKind) -> Result<bool, ApiError> {
    match check_size(lease) {
        Ok(()) => Ok(false),
        Err(error) if kind == WriteKind::Apply => Err(error),
        Err(_) => {
            lease.metadata.managed_fields = ManagedFields::ABSENT;
            check_size(lease).map(|()| true)
        }
    }
}

/// Refuses a write of a long Lease (more than 16 KiB of memory) with 429 while running lists still hold too many old
/// states of long Leases ([`OUTLIVED_BYTES_MAX`](crate::limits::OUTLIVED_BYTES_MAX)).
fn check_long_write(table: &mut Table, slot: Option<Slot>, lease: &Lease) -> Result<(), ApiError> {
    table.sweep_outlived();
    if table.must_refuse_long(slot, lease) { Err(ApiError::TooManyRequests) } else { Ok(()) }
}

/// Checks that a Lease is small enough for etcd. The limit leaves room for a later deletion, which may make the Lease
/// slightly larger.
fn check_size(lease: &Lease) -> Result<(), ApiError> {
    // Nearly always the upper bound of the length is small enough. The upper bound is faster to compute than the exact
    // length.
    if lease_len_max(lease) <= OBJECT_BYTES_MAX {
        return Ok(());
    }
    let length = lease_len(lease, ResourceVersion(0));
    if length <= OBJECT_BYTES_MAX {
        return Ok(());
    }
    if length <= OBJECT_BYTES_SENT_MAX {
        return Err(ApiError::too_large_for_etcd());
    }
    let message = format!(
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({length} vs. {OBJECT_BYTES_SENT_MAX})"
    );
    Err(ApiError::Unclassified { message })
}

/// Checks that the validation of the Lease `name` has found no errors: `causes` must be empty.
///
/// # Errors
/// 422 with all `causes`.
pub(super) fn valid(name: &str, causes: Vec<FieldError>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid { subject: InvalidSubject::Lease, name: name.to_owned(), causes })
}

#[cfg(test)]
mod tests {
    use super::super::Reply;
    use super::*;
    use crate::auth::Credentials;
    use crate::clock::Now;
    use crate::form::Response;
    use crate::http::{Method, NoLines, RequestHead};
    use crate::resource::ResourceVersion;
    use crate::table::object::Object;
    use crate::timestamp::Time;

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases";

    fn create(api: &mut Api, table: &mut Table, body: &str) -> Response {
        send(api, table, Method::Post, LEASES, body)
    }

    fn send(api: &mut Api, table: &mut Table, method: Method, path: &str, body: &str) -> Response {
        let head = RequestHead::bare(method, path, "", &NoLines);
        let now = Now { ms: 0, wall: Time(1_795_219_345) };
        match api.handle(table, &head, body.as_bytes(), None, &Credentials::insecure(), now) {
            Reply::Response(response) => response,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_taken_generated_name_is_retried_a_few_times() {
        let (mut api, mut table) = (Api::new(), Table::new(ResourceVersion(1), 1_000, usize::MAX));
        let named = |name: &str| format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
        // The test creates Leases with all names that the next creation will try, except the last name.
        let mut same = api.rng.clone();
        let names: Vec<_> = (0..GENERATED_NAMES_MAX).map(|_| generated_name("g-", &mut same)).collect();
        let (last, others) = names.split_last().expect("names");
        for name in others {
            assert_eq!(create(&mut api, &mut table, &named(name)).status, 201);
        }
        let before = api.rng.clone();
        let wanted = "{\"metadata\":{\"generateName\":\"g-\"}}";
        let created = create(&mut api, &mut table, wanted);
        let body: serde_json::Value = serde_json::from_slice(&created.body.into_bytes()).expect("JSON");
        assert_eq!((created.status, body["metadata"]["name"].as_str()), (201, Some(last.as_str())));

        api.rng = before;
        let refused = create(&mut api, &mut table, wanted);
        let status: serde_json::Value = serde_json::from_slice(&refused.body.into_bytes()).expect("JSON");
        let words = format!(
            "leases.coordination.k8s.io \"{last}\" already exists, the server was not able to generate a unique name for the object"
        );
        assert_eq!((refused.status, refused.retry_after_seconds), (409, 1));
        assert_eq!((status["reason"].as_str(), status["message"].as_str()), (Some("AlreadyExists"), Some(&*words)));
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        assert_eq!(table.len(), GENERATED_NAMES_MAX);

        // If the client sets both `name` and `generateName`, the server tries only `name`. The message is still that of
        // a generated name.
        let both = format!("{{\"metadata\":{{\"name\":\"{last}\",\"generateName\":\"g-\"}}}}");
        let refused = create(&mut api, &mut table, &both);
        let status: serde_json::Value = serde_json::from_slice(&refused.body.into_bytes()).expect("JSON");
        assert_eq!((refused.status, status["message"].as_str()), (409, Some(&*words)));
        assert_eq!(create(&mut api, &mut table, &named(last)).retry_after_seconds, 0);
    }

    /// A client rewrites a long Lease while many lists are in progress. Each list holds another state of that Lease,
    /// since its client does not read the response. Goal: the server limits the memory of these states, and refuses
    /// only writes of long Leases.
    #[test]
    fn a_large_lease_is_not_rewritten_while_lists_hold_many_states() {
        const REWRITES_MAX: usize = 1000;
        let (mut api, mut table) = (Api::new(), Table::new(ResourceVersion(1), 1, 0));
        let holder = "\\u0001".repeat(100_000);
        let named = |name: &str, holder: &str, transitions: u64, version: ResourceVersion| {
            let meta = if version.0 == 0 { String::new() } else { format!(",\"resourceVersion\":\"{}\"", version.0) };
            format!(
                "{{\"metadata\":{{\"name\":\"{name}\"{meta}}},\
                 \"spec\":{{\"holderIdentity\":\"{holder}\",\"leaseTransitions\":{transitions}}}}}"
            )
        };
        let path = |name: &str| format!("{LEASES}/{name}");
        let first = ResourceVersion(0);
        assert_eq!(create(&mut api, &mut table, &named("short", "h", 0, first)).status, 201);
        let short_version = table.version();
        assert_eq!(create(&mut api, &mut table, &named("long", &holder, 0, first)).status, 201);
        let mut held: Vec<Object> = Vec::new();
        let rewritten = |api: &mut Api, table: &mut Table, version| {
            send(api, table, Method::Put, &path("long"), &named("long", &holder, version, ResourceVersion(version)))
        };
        let refused = loop {
            let (_, state) = table.find("n", "long").expect("it is there");
            // A running list would make the table retain this state in the same way.
            held.push(state.clone());
            let version = state.version.0;
            assert!(held.len() < REWRITES_MAX, "nothing is refused");
            let response = rewritten(&mut api, &mut table, version);
            if response.status != 200 {
                break response;
            }
        };
        assert_eq!((refused.status, refused.retry_after_seconds), (429, 1));
        assert_eq!(create(&mut api, &mut table, &named("another", &holder, 0, first)).status, 429);
        assert_eq!(create(&mut api, &mut table, &named("brief", "h", 0, first)).status, 201);
        let renewed = named("short", "another", 1, short_version);
        assert_eq!(send(&mut api, &mut table, Method::Put, &path("short"), &renewed).status, 200);

        held.clear();
        let (_, state) = table.find("n", "long").expect("it is there");
        let version = state.version.0;
        assert_eq!(rewritten(&mut api, &mut table, version).status, 200, "the lists have gone");
    }
}
