//! Feature gates: the operator switches features of this server on or off, by kube-apiserver's names for them. The
//! features in this module are off by default.

/// The feature gates, with kube-apiserver's names and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ShardedListAndWatch`: lists, watches and deletions of a collection heed `shardSelector` (KEP-5866, alpha).
    pub sharded_list_and_watch: bool,
}

impl FeatureGates {
    /// Parses settings of gates, such as `ShardedListAndWatch=true`. The last setting of each gate counts. Empty
    /// settings are ignored.
    ///
    /// # Errors
    /// A message about the first wrong setting, in words like kube-apiserver's (component-base `featuregate`, `Set`).
    pub fn parse(settings: &[impl AsRef<str>]) -> Result<Self, String> {
        let mut gates = Self::default();
        for setting in settings.iter().map(AsRef::as_ref).filter(|setting| !setting.is_empty()) {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| format!("missing bool value for {}", setting.trim()))?;
            let (name, value) = (name.trim(), value.trim());
            let is_on = match value {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return Err(format!("invalid value of {name}={value}: not a bool such as true or false")),
            };
            match name {
                SHARDED_LIST_AND_WATCH => gates.sharded_list_and_watch = is_on,
                _ => return Err(format!("unrecognized feature gate: {name}")),
            }
        }
        Ok(gates)
    }
}

const SHARDED_LIST_AND_WATCH: &str = "ShardedListAndWatch";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_of_a_gate_counts() {
        for (settings, expected) in [
            (&[][..], false),
            (&["", ""], false),
            (&["ShardedListAndWatch=true"], true),
            (&[" ShardedListAndWatch = T ", ""], true),
            (&["ShardedListAndWatch=1", "ShardedListAndWatch=false"], false),
        ] {
            let gates = FeatureGates::parse(settings).expect("settings");
            assert_eq!(gates.sharded_list_and_watch, expected, "{settings:?}");
        }
    }

    #[test]
    fn an_invalid_feature_gate_setting_is_refused() {
        for (setting, expected) in [
            ("ShardedListAndWatch", "missing bool value for ShardedListAndWatch"),
            ("ShardedListAndWatch=", "invalid value of ShardedListAndWatch="),
            ("ShardedListAndWatch=yes", "invalid value of ShardedListAndWatch=yes"),
            ("WatchList=true", "unrecognized feature gate: WatchList"),
            ("shardedListAndWatch=true", "unrecognized feature gate: shardedListAndWatch"),
            ("=true", "unrecognized feature gate: "),
        ] {
            let message = FeatureGates::parse(&[setting]).expect_err(setting);
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
