//! The fast path of a renewal. A renewal is an update whose body is the server's encoding of the current Lease with
//! another `renewTime`. The fast path decodes and validates only the `renewTime`. The Lease was valid with its old
//! `renewTime`, so it is valid with the new one.
//!
//! Invariant: for each request, the fast path returns `None`, or has the same effect as the rest of
//! [`Api::decide_update`], byte for byte. A test in this module compares both paths.

use super::answer::Answer;
use super::{Api, Call, Verdict};
#[cfg(test)]
use crate::codec::Format;
use crate::form::Form;
use crate::lease::managed_fields::{is_manager_of_user_agent, time_after_renewal};
use crate::lease::strategy::is_renewable;
use crate::media_type::body_format;
use crate::options::WriteOptions;
use crate::resource::ApiVersion;
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::RenewedTimes;

impl Api {
    /// Returns the verdict about a renewal; `None` for any other request.
    #[inline]
    pub(super) fn decide_renewal(
        &mut self,
        table: &Table,
        call: &Call<'_>,
        (namespace, name): (&str, &str),
        options: &WriteOptions,
        form: Form,
    ) -> Option<Verdict> {
        #[cfg(test)]
        if self.long_way_only {
            return None;
        }
        // The fast path compares the body with encodings in the stored API version. In another API version, the same
        // body has another meaning.
        if options.dry_run || call.version != ApiVersion::V1 {
            return None;
        }
        let format = body_format(call.head.content_type)?;
        let (slot, current) = table.find(namespace, name)?;
        let renew_time = current.renew_time_in(format, call.body, is_renewable)?;
        // An update that does not change `renewTime` is not a renewal.
        if current.renew_time() == Some(renew_time) {
            return None;
        }
        let is_writer = |manager: &str| match options.field_manager.as_str() {
            "" => is_manager_of_user_agent(manager, call.head.user_agent.unwrap_or_default()),
            named => named == manager,
        };
        let managed_fields = &current.metadata().managed_fields;
        let managed_time = time_after_renewal(managed_fields, current.managed_time(), is_writer, call.now.wall)?;
        let change = Change::Renew(table.target(slot), RenewedTimes { renew_time, managed_time });
        #[cfg(test)]
        {
            self.short_ways[usize::from(format == Format::Protobuf)] += 1;
        }
        // The server writes the change even if it refuses the requested form of the response.
        Some(Verdict::Write(change, Answer::applied(200, form, call.check_options_of(form))))
    }
}

#[cfg(test)]
mod tests;
