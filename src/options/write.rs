//! Options of a creation, an update and a patch, in the query.

use super::{Query, dry_run_complaint, is_true, keep_first, text_or_empty, valid_or};
use crate::api_error::{ApiError, FieldError};
use crate::lease::validation::complaints::Complaints;
use crate::lease::validation::validate_field_manager;
use crate::patch::PatchType;
use compact_str::CompactString;
use std::borrow::Cow;

/// `metav1.CreateOptions`, `UpdateOptions` and `PatchOptions`, converted and validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether the write is a dry run, which stores nothing.
    pub dry_run: bool,
    /// Name of the field manager that owns the written fields. If empty, the server derives the name from the user
    /// agent.
    pub field_manager: CompactString,
    /// What the server does about unknown and repeated fields in the body.
    pub field_validation: FieldValidation,
    /// Whether a server-side apply may take over fields that other field managers own. Only a server-side apply sets
    /// this option.
    pub force: Option<bool>,
}

/// What the server does about unknown and repeated fields in a body (`fieldValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// The server ignores unknown and repeated fields.
    Ignore,
    /// The server ignores unknown and repeated fields, and adds a `Warning` header field about each to the response.
    #[default]
    Warn,
    /// The server refuses a request with unknown or repeated fields.
    Strict,
}

impl WriteOptions {
    /// Parses the options of a creation, an update, or a patch that is not an apply. `kind` is the kind of the
    /// options: `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    ///
    /// # Errors
    /// 422 for unsupported values.
    pub fn parse(query: &Query<'_>, kind: &'static str) -> Result<Self, ApiError> {
        Self::parse_as(query, kind, false)
    }

    /// Parses the options of a patch.
    ///
    /// # Errors
    /// 422 for unsupported values, and for options that do not apply to this type of patch.
    pub fn parse_patch(query: &Query<'_>, patch_type: PatchType) -> Result<Self, ApiError> {
        Self::parse_as(query, PATCH_OPTIONS, patch_type == PatchType::Apply)
    }

    fn parse_as(query: &Query<'_>, kind: &'static str, apply: bool) -> Result<Self, ApiError> {
        if query.is_empty() && !apply {
            return Ok(Self::default());
        }
        let mut dry_run: Vec<Cow<'_, str>> = Vec::new();
        let (mut manager, mut validation, mut force) = (None, None, None);
        for (name, value) in query.pairs() {
            match name.as_ref() {
                "dryRun" => dry_run.push(value),
                "fieldManager" => keep_first(&mut manager, value),
                "fieldValidation" => keep_first(&mut validation, value),
                "force" if kind == PATCH_OPTIONS => keep_first(&mut force, is_true(&value)),
                _ => {}
            }
        }
        let mut complaints = Complaints::default();
        if apply && text_or_empty(&manager).is_empty() {
            complaints.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if !apply && force.is_some() {
            complaints.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        validate_field_manager("fieldManager", text_or_empty(&manager), &mut complaints);
        if let Some(complaint) = dry_run_complaint(&dry_run) {
            complaints.push(complaint);
        }
        let field_validation = match text_or_empty(&validation) {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            unknown => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                complaints.push(FieldError::not_supported("fieldValidation", unknown, &supported));
                FieldValidation::Warn
            }
        };
        valid_or(kind, complaints.all)?;
        let field_manager = manager.map(CompactString::from).unwrap_or_default();
        Ok(Self { dry_run: !dry_run.is_empty(), field_manager, field_validation, force })
    }
}

/// Kind of the options of a patch.
const PATCH_OPTIONS: &str = "PatchOptions";

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 3] = ["CreateOptions", "UpdateOptions", "PatchOptions"];

    fn refusal(raw: &str, kind: &'static str) -> String {
        let status = WriteOptions::parse(&Query::new(raw), kind).expect_err(raw).status();
        assert_eq!(status.code, 422);
        let prefix = format!("{kind}.meta.k8s.io \"\" is invalid: ");
        status.message.strip_prefix(&prefix).expect("the kind of the options").to_owned()
    }

    #[test]
    fn reads_every_option() {
        for kind in KINDS {
            let query = Query::new("dryRun=All&dryRun=All&fieldManager=my+manager&fieldValidation=Strict&pretty=1");
            let options = WriteOptions::parse(&query, kind).expect("options");
            assert!(options.dry_run);
            assert_eq!(options.field_manager, "my manager");
            assert_eq!(options.field_validation, FieldValidation::Strict);
            assert_eq!(WriteOptions::parse(&Query::new(""), kind), Ok(WriteOptions::default()));
            let ignore = WriteOptions::parse(&Query::new("fieldValidation=Ignore"), kind).expect("options");
            assert_eq!(ignore.field_validation, FieldValidation::Ignore);
        }
    }

    #[test]
    fn invalid_options_get_the_errors_of_kube_apiserver() {
        for kind in KINDS {
            for (value, shown) in
                [("dryRun=Some", "[\"Some\"]"), ("dryRun=", "[\"\"]"), ("dryRun=All&dryRun=x", "[\"All\",\"x\"]")]
            {
                let expected = format!("dryRun: Unsupported value: {shown}: supported values: \"All\"");
                assert_eq!(refusal(value, kind), expected);
            }
            assert_eq!(
                refusal("fieldValidation=Nonsense", kind),
                "fieldValidation: Unsupported value: \"Nonsense\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
            );
            assert_eq!(
                refusal(&format!("fieldManager={}", "x".repeat(129)), kind),
                "fieldManager: Too long: may not be more than 128 bytes"
            );
            assert_eq!(
                refusal("fieldManager=tab%09here", kind),
                "fieldManager: Invalid value: \"tab\\there\": invalid character U+0009 (at position 3)"
            );
        }
        let all = refusal("fieldValidation=x&dryRun=x&fieldManager=%01", "CreateOptions");
        let order: Vec<_> = ["fieldManager: ", "dryRun: ", "fieldValidation: "].iter().map(|f| all.find(f)).collect();
        assert!(order.is_sorted() && order[0].is_some(), "{all}");
    }

    #[test]
    fn force_is_allowed_only_for_apply() {
        assert_eq!(refusal("force=true", "PatchOptions"), "force: Forbidden: may not be specified for non-apply patch");
        let created = WriteOptions::parse(&Query::new("force=true"), "CreateOptions").expect("not an option here");
        assert_eq!(created.force, None);
        let query = Query::new("force=true&fieldManager=m");
        assert_eq!(WriteOptions::parse_patch(&query, PatchType::Apply).expect("options").force, Some(true));
        assert!(WriteOptions::parse_patch(&query, PatchType::Merge).is_err());
    }

    #[test]
    fn an_apply_needs_a_field_manager() {
        let error = WriteOptions::parse_patch(&Query::new(""), PatchType::Apply).expect_err("no manager");
        assert_eq!(
            error.status().message,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
    }

    #[test]
    fn a_hostile_manager_gets_a_bounded_answer() {
        assert!(refusal(&format!("fieldManager={}", "%01".repeat(20_000)), "CreateOptions").len() < 1 << 20);
    }
}
