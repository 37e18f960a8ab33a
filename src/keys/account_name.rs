//! Names that a new account must not have, although their form is valid.

use super::key_file::{DeclaredKey, name_key};
use super::token::has_generated_key;

/// Why a new account must not have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfitAccountName {
    /// The name begins with `}`. The Redis keys of an account have its name between braces. With
    /// such a name, a Redis Cluster would read an empty hash tag, and put these Redis keys on
    /// several servers.
    BeginsWithBrace,
    /// The name has an `@`, so it may be an e-mail address. Names stand in logs, metrics of other
    /// systems and the audit.
    HasAt,
    /// The name has a key that riskgate generated.
    HasKey,
}

impl UnfitAccountName {
    /// Finds why a new account must not have this name; `None` if it may.
    pub fn find(name: &str) -> Option<UnfitAccountName> {
        if name.starts_with('}') {
            Some(UnfitAccountName::BeginsWithBrace)
        } else if name.contains('@') {
            Some(UnfitAccountName::HasAt)
        } else if has_generated_key(name) {
            Some(UnfitAccountName::HasKey)
        } else {
            None
        }
    }
}

/// Warns of the accounts of a key file that no command would make. They work, because a gateway may
/// have served them for long. The texts have no name that may be an address or a key.
pub fn warn_of_unfit_accounts(declared: &[DeclaredKey]) -> Vec<String> {
    use UnfitAccountName::{BeginsWithBrace, HasAt, HasKey};
    let unfit = |DeclaredKey { key, .. }: &&DeclaredKey| UnfitAccountName::find(&key.account);
    let warnings = [BeginsWithBrace, HasAt, HasKey].into_iter().filter_map(|kind| {
        let mut keys = declared.iter().filter(|it| unfit(it) == Some(kind));
        let first = name_key(&keys.next()?.key.id);
        let found = match keys.count() {
            0 => first,
            others => format!("{first}, and in {others} more"),
        };
        Some(match kind {
            BeginsWithBrace => format!(
                "keys.file: expected names of accounts not to begin with }}, but found one in \
                 {found}; on a Redis Cluster, riskgate can't count its calls"
            ),
            HasAt => format!(
                "keys.file: expected names of accounts without @, but found one in {found}; \
                 logs and the audit show names"
            ),
            HasKey => format!(
                "keys.file: expected names of accounts, but found a key in {found}; logs and \
                 the audit show names"
            ),
        })
    });
    warnings.collect()
}

#[cfg(test)]
mod tests;
