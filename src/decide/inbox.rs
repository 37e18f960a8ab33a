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

    /// Returns the inbox of an address. The inbox of an inbox is itself.
    pub fn canonical_inbox(&self, address: &EmailAddress) -> CanonicalInbox {
        let local_part = canonical_local_part(address);
        let domain = address.domain();
        if let Some((label, parent)) = domain.as_str().split_once('.')
            && let Some(rule) = self.by_parent.get(parent)
        {
            return self.fold(label.to_owned(), &rule.inbox_domain);
        }
        self.fold(local_part, domain)
    }

    /// Folds a local part in lower case by the rule of its domain. A local part that needs quotes
    /// stays as it is, on its own domain.
    fn fold(&self, local_part: String, domain: &Domain) -> CanonicalInbox {
        let rule = self
            .by_domain
            .get(domain)
            .filter(|_| EmailAddress::is_unquoted_local_part(&local_part));
        let (folded, domain) = match rule {
            None => (local_part, domain),
            Some(rule) => {
                let fold = |text: String, fold: &Fold| {
                    // If a fold leaves no valid local part, no mailbox has this name.
                    let folded = fold.apply(&text);
                    if EmailAddress::is_unquoted_local_part(&folded) { folded } else { text }
                };
                (rule.folds.iter().fold(local_part, fold), &rule.inbox_domain)
            }
        };
        CanonicalInbox { text: format!("{folded}@{domain}"), domain: domain.clone() }
    }
}

/// Returns the spelling of an address by which riskgate counts addresses: in lower case, without
/// needless quotes and backslashes. Tags and dots stay.
pub fn canonical_address_text(address: &EmailAddress) -> String {
    format!("{}@{}", canonical_local_part(address), address.domain())
}

/// Returns the local part in lower case, without needless quotes and backslashes, which never make
/// another mailbox (RFC 5321 section 4.1.2).
fn canonical_local_part(address: &EmailAddress) -> String {
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
    let meant = meant.to_ascii_lowercase();
    if EmailAddress::is_unquoted_local_part(&meant) {
        return meant;
    }
    let escaped = meant.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inbox(text: &str) -> CanonicalInbox {
        let rules = InboxRules::built_in().unwrap_or_else(|fault| panic!("{fault}"));
        rules.canonical_inbox(&EmailAddress::parse(text).unwrap_or_else(|_| panic!("{text}")))
    }

    #[test]
    fn addresses_of_one_mailbox_have_one_inbox() {
        for (inbox_text, addresses) in [
            (
                "janedoe@gmail.com",
                &[
                    "jane.doe@gmail.com",
                    "JaneDoe+shop@googlemail.com",
                    "j.a.n.e.d.o.e.+x@gmail.com",
                    "\"jane.doe\"@gmail.com",
                    "\"j\\ane\\.doe\"@gmail.com",
                ][..],
            ),
            ("\"jane \\\"d\"@gmail.com", &["\"J\\ane\\ \\\"d\"@gmail.com"]),
            ("jane@mailbox.org", &["jane+x@secure.mailbox.org"]),
            ("jane.doe@outlook.com", &["Jane.Doe+a+b@outlook.com"]),
            ("jane-doe@yandex.ru", &["jane.doe+x@ya.ru", "jane-doe@yandex.com"]),
            ("janedoe@proton.me", &["jane_doe+x@pm.me", "jane-doe@protonmail.com"]),
            ("jane@icloud.com", &["jane@me.com", "jane+x@mac.com"]),
            ("jane@fastmail.com", &["anything@jane.fastmail.com", "jane+x@fastmail.com"]),
            ("base-@yahoo.com", &["base-shop@yahoo.com", "base-a-b@yahoo.com"]),
        ] {
            for address in addresses {
                assert_eq!(inbox(address).as_str(), inbox_text, "{address}");
            }
        }
    }

    #[test]
    fn mailboxes_that_may_be_of_two_people_stay_apart() {
        for (one, other) in [
            ("jane.doe@outlook.com", "janedoe@outlook.com"),
            ("jane@outlook.com", "jane@hotmail.com"),
            ("jane@fastmail.com", "jane@fastmail.fm"),
            ("jane.doe@example.com", "janedoe@example.com"),
            ("jane+x@example.com", "jane@example.com"),
            ("base-shop@yahoo.com", "base@yahoo.com"),
            ("jane+x@tuta.com", "jane@tuta.com"),
            ("jane+x@gmx.de", "jane@gmx.de"),
            ("jane@a.b.fastmail.com", "jane@b.fastmail.com"),
            ("+x@gmail.com", "+y@gmail.com"),
            ("\"jane doe\"@gmail.com", "janedoe@gmail.com"),
        ] {
            assert_ne!(inbox(one), inbox(other), "{one} {other}");
        }
    }

    #[test]
    fn the_case_of_ascii_letters_never_counts() {
        assert_eq!(inbox("JANE+X@Example.COM").as_str(), "jane+x@example.com");
    }

    #[test]
    fn a_faulty_list_names_its_line() {
        for (rows, expected) in [
            ("gmail.com,gmail.com,dots", "data/inbox-rules.csv:2: expected four fields"),
            ("gmail.com,gmail.com,dots,", "data/inbox-rules.csv:2: expected a source"),
            (
                "gmail.com,gmail.com,dot,s",
                "data/inbox-rules.csv:2: expected folds that riskgate knows",
            ),
            (
                "a.com,a.com,dots,s\na.com,a.com,plus,s",
                "data/inbox-rules.csv:3: expected one rule for a domain",
            ),
            (
                "*.a.com,a.com,dots,s",
                "data/inbox-rules.csv:2: expected `*.` if and only if the fold is `subdomain`",
            ),
            (
                "*.a.com,a.com,plus subdomain,s",
                "data/inbox-rules.csv:2: expected no other fold beside `subdomain`",
            ),
            (
                "a.com,a.com,plus,s\nb.com,a.com,dots,s",
                "data/inbox-rules.csv: b.com: expected the same inbox domain and folds as those of \
                 a.com",
            ),
        ] {
            let found = InboxRules::parse(&format!("{HEADER}\n{rows}\n")).map(drop);
            assert_eq!(found, Err(expected.to_owned()));
        }
    }

    /// A domain for each row, and a domain without a row.
    fn listed_domains() -> Vec<String> {
        let rows =
            BUILT_IN_RULES_CSV.lines().filter(|line| !line.starts_with('#') && *line != HEADER);
        let names = rows.filter_map(|line| line.split(',').next());
        names.map(|name| name.replace('*', "a-b")).chain(["example.com".to_owned()]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_inbox_of_an_inbox_is_itself(
            local in "[a-zA-Z0-9+._-]{1,20}",
            domain in prop::sample::select(listed_domains()),
        ) {
            let text = format!("{local}@{domain}");
            prop_assume!(EmailAddress::parse(&text).is_ok());
            let once = inbox(&text);
            let parsed = EmailAddress::parse(once.as_str());
            prop_assert!(parsed.is_ok(), "{text} gave {}", once.as_str());
            let twice = inbox(once.as_str());
            prop_assert_eq!(twice.as_str(), once.as_str());
        }

        #[test]
        fn a_domain_without_a_rule_folds_nothing_but_case(local in "[a-z0-9+._-]{1,20}") {
            let text = format!("{local}@example.org");
            prop_assume!(EmailAddress::parse(&text).is_ok());
            let found = inbox(&text);
            prop_assert_eq!(found.as_str(), text);
        }
    }
}
