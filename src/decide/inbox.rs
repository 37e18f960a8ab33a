//! The canonical inbox of an address: one text for all addresses of one mailbox.
//!
//! For every address, the case of ASCII letters, needless quotes and needless backslashes don't
//! count. Only the providers' rules in `data/inbox-rules.csv` fold more. No DNS answer changes an
//! inbox.

use std::collections::HashMap;
use std::fmt;

use crate::model::domain::Domain;
use crate::model::email::EmailAddress;

/// The providers' rules of this release.
const BUILT_IN_RULES_CSV: &str = include_str!("../../data/inbox-rules.csv");
/// The first line of the file that is no comment.
const HEADER: &str = "domain,inbox_domain,folds,source";

/// How the addresses of a domain become inboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InboxRule {
    /// The domain of the canonical inbox.
    inbox_domain: Domain,
    folds: Vec<Fold>,
}

/// A way in which a provider takes two local parts for one mailbox. The folds of a rule apply in
/// the order of this enum, so that the inbox of an inbox is itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fold {
    /// Dots don't count.
    Dots,
    /// Hyphens don't count.
    Hyphens,
    /// Underscores don't count.
    Underscores,
    /// A dot is a hyphen.
    HyphenIsDot,
    /// A `+` and the text behind it don't count.
    Plus,
    /// A hyphen and the text behind it don't count.
    HyphenTag,
    /// The text behind a hyphen does not count, but the hyphen does: the text before the hyphen is
    /// a name of its own, and no plain local part.
    HyphenBase,
    /// The label before the domain names the mailbox, and the local part does not count.
    Subdomain,
}

/// The inbox that an address belongs to. `Debug` prints only its domain.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CanonicalInbox {
    /// The local part, `@` and the domain.
    text: String,
    domain: Domain,
}

/// The providers' rules, by domain.
pub struct InboxRules {
    by_domain: HashMap<Domain, InboxRule>,
    /// Rules for the names one label below a domain.
    by_parent: HashMap<String, InboxRule>,
}

impl CanonicalInbox {
    /// The local part, `@` and the domain.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The domain of the inbox.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The registrable domain for which a sign-up with this address counts, unless the domain is
    /// protected or free. `None` for a public suffix, and if the inboxes of the domain are on
    /// another domain: then the domain belongs to a provider.
    pub fn counted_domain(&self, address: &EmailAddress) -> Option<&str> {
        let start = self.domain.registrable_start().filter(|_| self.domain == *address.domain())?;
        Some(&self.domain.as_str()[start..])
    }
}

impl fmt::Debug for CanonicalInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "…@{}", self.domain)
    }
}

impl Fold {
    const ALL: [(&'static str, Fold); 8] = [
        ("dots", Fold::Dots),
        ("hyphens", Fold::Hyphens),
        ("underscores", Fold::Underscores),
        ("hyphen-is-dot", Fold::HyphenIsDot),
        ("plus", Fold::Plus),
        ("hyphen-tag", Fold::HyphenTag),
        ("hyphen-base", Fold::HyphenBase),
        ("subdomain", Fold::Subdomain),
    ];

    fn apply(self, local_part: &str) -> String {
        let without = |c: char| local_part.replace(c, "");
        let before = |c: char| local_part.split(c).next().unwrap_or_default().to_owned();
        match self {
            Fold::Dots => without('.'),
            Fold::Hyphens => without('-'),
            Fold::Underscores => without('_'),
            Fold::HyphenIsDot => local_part.replace('.', "-"),
            Fold::Plus => before('+'),
            Fold::HyphenTag => before('-'),
            Fold::HyphenBase => match local_part.split_once('-') {
                Some((base, _)) => format!("{base}-"),
                None => local_part.to_owned(),
            },
            Fold::Subdomain => local_part.to_owned(),
        }
    }
}

impl InboxRules {
    /// The rules of this release.
    ///
    /// # Errors
    /// Returns the first fault of the list. A test shows that the list has no fault.
    pub fn built_in() -> Result<InboxRules, String> {
        InboxRules::parse(BUILT_IN_RULES_CSV)
    }

    /// Parses lines of `domain,inbox_domain,folds,source`. Lines that begin with `#` are comments.
    fn parse(text: &str) -> Result<InboxRules, String> {
        let mut rules = InboxRules { by_domain: HashMap::new(), by_parent: HashMap::new() };
        let numbered = (1..).zip(text.lines());
        let mut rows = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        if rows.next().is_none_or(|(_, line)| line != HEADER) {
            return Err(format!("data/inbox-rules.csv: expected the first line {HEADER:?}"));
        }
        for (number, line) in rows {
            let fault = |expected: &str| format!("data/inbox-rules.csv:{number}: {expected}");
            let fields: Vec<&str> = line.split(',').collect();
            let [name, inbox_domain, folds, source] = fields[..] else {
                return Err(fault("expected four fields"));
            };
            if source.is_empty() {
                return Err(fault("expected a source"));
            }
            let domain =
                |text: &str| Domain::parse(text).map_err(|error| fault(&error.to_string()));
            let find = |word| Fold::ALL.iter().find(|(name, _)| *name == word).map(|(_, it)| *it);
            let folds: Option<Vec<Fold>> = folds.split_whitespace().map(find).collect();
            let mut folds = folds.ok_or_else(|| fault("expected folds that riskgate knows"))?;
            folds.sort();
            let rule = InboxRule { inbox_domain: domain(inbox_domain)?, folds };
            if rule.folds.len() > 1 && rule.folds.contains(&Fold::Subdomain) {
                return Err(fault("expected no other fold beside `subdomain`"));
            }
            let is_below = rule.folds.contains(&Fold::Subdomain);
            let earlier = match (is_below, name.strip_prefix("*.")) {
                (true, Some(parent)) => {
                    rules.by_parent.insert(domain(parent)?.as_str().to_owned(), rule)
                }
                (false, None) => rules.by_domain.insert(domain(name)?, rule),
                _ => return Err(fault("expected `*.` if and only if the fold is `subdomain`")),
            };
            if earlier.is_some() {
                return Err(fault("expected one rule for a domain"));
            }
        }
        rules.check_inbox_domains()?;
        Ok(rules)
    }

    /// Fails if the inbox of an inbox would be another inbox.
    fn check_inbox_domains(&self) -> Result<(), String> {
        for (name, rule) in &self.by_domain {
            let of_inbox = self.by_domain.get(&rule.inbox_domain);
            let has_same = of_inbox.map_or(rule.folds.is_empty(), |it| it == rule);
            if !has_same || self.is_below_parent(&rule.inbox_domain) {
                let inbox_domain = &rule.inbox_domain;
                return Err(format!(
                    "data/inbox-rules.csv: {name}: expected the same inbox domain and folds as \
                     those of {inbox_domain}"
                ));
            }
        }
        Ok(())
    }

    fn is_below_parent(&self, domain: &Domain) -> bool {
        let parent = domain.as_str().split_once('.').map(|(_, parent)| parent);
        parent.is_some_and(|parent| self.by_parent.contains_key(parent))
    }

    /// Whether a provider's rule says how the addresses of this domain become inboxes.
    pub fn has_rule(&self, domain: &Domain) -> bool {
        self.by_domain.contains_key(domain) || self.is_below_parent(domain)
    }

    /// Returns the inbox of an address. The inbox of an inbox is itself.
    pub fn canonical_inbox(&self, address: &EmailAddress) -> CanonicalInbox {
        let local_part = unquoted_local_part(address);
        let domain = address.domain();
        if let Some((label, parent)) = domain.as_str().split_once('.')
            && let Some(rule) = self.by_parent.get(parent)
        {
            return self.fold(label.to_owned(), &rule.inbox_domain);
        }
        self.fold(local_part, domain)
    }

    /// Folds a local part in lower case and without quotes by the rule of its domain.
    fn fold(&self, local_part: String, domain: &Domain) -> CanonicalInbox {
        let (folded, domain) = match self.by_domain.get(domain) {
            None => (local_part, domain),
            Some(rule) => {
                let needs_quotes = |text: &str| !EmailAddress::is_unquoted_local_part(text);
                let fold = |text: String, fold: &Fold| {
                    let folded = fold.apply(&text);
                    // If a fold leaves no valid local part, no mailbox has this name.
                    let is_left =
                        folded.is_empty() || (needs_quotes(&folded) && !needs_quotes(&text));
                    if is_left { text } else { folded }
                };
                (rule.folds.iter().fold(local_part, fold), &rule.inbox_domain)
            }
        };
        CanonicalInbox {
            text: join_address(&quote_if_needed(folded), domain),
            domain: domain.clone(),
        }
    }
}

/// Returns the spelling of an address by which riskgate counts addresses: with ASCII letters in
/// lower case, without needless quotes and backslashes. Tags and dots stay.
pub fn canonical_address_text(address: &EmailAddress) -> String {
    join_address(&quote_if_needed(unquoted_local_part(address)), address.domain())
}

/// Joins a local part and a domain. Each sign-up needs two such texts, so this allocates once, as
/// `format!` does not.
fn join_address(local_part: &str, domain: &Domain) -> String {
    let mut text = String::with_capacity(local_part.len() + 1 + domain.as_str().len());
    text.push_str(local_part);
    text.push('@');
    text.push_str(domain.as_str());
    text
}

/// Returns the local part with ASCII letters in lower case, without quotes and without the
/// backslashes between them. Neither ever makes another mailbox (RFC 5321 section 4.1.2).
fn unquoted_local_part(address: &EmailAddress) -> String {
    let written = address.local_part();
    let Some(inner) = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return written.to_ascii_lowercase();
    };
    let mut meant = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        // A backslash stands for the character behind it.
        meant.extend(if c == '\\' { characters.next() } else { Some(c) });
    }
    meant.to_ascii_lowercase()
}

/// Returns a local part with quotes and backslashes if it needs them.
fn quote_if_needed(meant: String) -> String {
    if EmailAddress::is_unquoted_local_part(&meant) {
        return meant;
    }
    let escaped = meant.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests;
