//! The verdict on a domain: reason, score and facts.
//!
//! No I/O. `table::rules` decides which rule applies.

use std::fmt;

use serde_json::json;

/// Why a domain has its score: the `reason` of the public answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// No other reason applies. The score may still flag the domain.
    Safe = 0,
    /// A service for throw-away addresses.
    Disposable = 1,
    /// The domain receives no mail.
    Undeliverable = 2,
    /// The address, or every address of the domain, belongs to a function, a list or a machine
    /// rather than to a person.
    RoleAccount = 3,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Reason; 4] =
        [Reason::Safe, Reason::Disposable, Reason::Undeliverable, Reason::RoleAccount];

    /// The name in answers, lists and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Safe => "safe",
            Reason::Disposable => "disposable",
            Reason::Undeliverable => "undeliverable",
            Reason::RoleAccount => "role_account",
        }
    }

    /// The reason with this name.
    pub fn parse(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Returns true if nothing is said against the domain. Its score may still be high enough to
    /// flag it: see [`Score::is_flagged`].
    pub const fn is_safe(self) -> bool {
        matches!(self, Reason::Safe)
    }

    /// Whether a score says the opposite: the score flags a name whose reason is `safe`, or does
    /// not flag a name with another reason.
    pub fn contradicts(self, score: Score) -> bool {
        self.is_safe() == score.is_flagged()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A risk score, 0 to 100, higher is riskier. Three thresholds have a name, so that data, code
/// and documents mean the same: *flagged*, *risky*, and the default of `block_score`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Score(u8);

impl Score {
    /// No risk known.
    pub const ZERO: Score = Score(0);
    /// From this score on, a name is *flagged*.
    pub const MIN_FLAGGED: Score = Score(50);
    /// From this score on, an address or a name is *risky*: a check says `is_risky`.
    pub const MIN_RISKY: Score = Score(65);
    /// From this score on, screening and `[authz]` refuse an address by default (`block_score`).
    pub const DEFAULT_BLOCK_SCORE: Score = Score(80);

    /// The score, if it is at most 100.
    pub const fn new(value: u8) -> Option<Score> {
        if value <= 100 { Some(Score(value)) } else { None }
    }

    /// 0 to 100.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// Whether a name with this score is flagged.
    pub fn is_flagged(self) -> bool {
        self >= Score::MIN_FLAGGED
    }

    /// Whether a name or an address with this score is risky.
    pub fn is_risky(self) -> bool {
        self >= Score::MIN_RISKY
    }
}

/// The rules that give a verdict. If the lists give a name the facts of several rules, the first of
/// them in this order decides. If no list judges a name, `UnknownTld` comes first. The other rules
/// for unlisted names, and the rules about DNS facts, have an order of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rule {
    /// The operator's override of a name, or of a name and its subdomains.
    Override = 1,
    /// A name that never receives mail (RFC 2606, 6761, 6762, 7686, 8375, 9476).
    SpecialUse = 2,
    /// A top-level domain that does not exist.
    UnknownTld = 3,
    /// A name that no list may flag.
    Protected = 4,
    /// A relay or an alias service.
    Alias = 5,
    /// A service that gives inboxes to programs, such as AI agents.
    AgentInbox = 6,
    /// In a list of disposable domains of tier A, the most reliable one.
    DisposableA = 7,
    /// In a list of disposable domains of tier B.
    DisposableB = 8,
    /// In a list of disposable domains of tier C.
    DisposableC = 9,
    /// In a list of disposable domains of tier D, the least reliable one, or the registrable name
    /// of several names in a feed.
    DisposableD = 10,
    /// The domain has a null MX (RFC 7505) or no mail host at all, or does not exist (NXDOMAIN).
    NoMail = 11,
    /// The domain's mail hosts have no addresses, or only addresses such as loopback, which mail
    /// can't reach.
    Parked = 12,
    /// The MX host belongs to a known operator of disposable domains.
    DisposableMx = 13,
    /// A host of mailing lists, or a domain of noreply addresses.
    Role = 14,
    /// A free mailbox provider.
    Free = 15,
    /// In no list, and its letters of other scripts look like a provider's name, or stand among
    /// Latin ones that they look like.
    LookAlike = 16,
    /// In no list, and a slip of the finger away from the name of a large provider.
    Typo = 17,
    /// In no list, and below a suffix that gives out names for free.
    FreeSubdomain = 18,
    /// In no list, and the registrable name contains a word such as "tempmail".
    ThrowawayName = 19,
    /// The MX host has an address of an operator of disposable domains. Other names may share the
    /// address, so this rule only raises a score.
    DisposableMxAddress = 20,
    /// The MX host belongs to a professional mail service.
    Professional = 21,
    /// In no list, and spelled like the names that abusers register in bulk.
    BulkName = 22,
    /// In no list, and the registrable name contains a word such as "mail".
    MailInName = 23,
    /// No other rule applies.
    Unknown = 24,
}

/// Where a verdict comes from: the value of `X-Verdict-Source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictSource {
    /// A list, or an operator's override.
    List,
    /// A rule for names in no list.
    Rule,
    /// The DNS records of the name.
    Dns,
    /// Nothing is known about the name.
    None,
}

impl VerdictSource {
    /// All sources.
    pub const ALL: [VerdictSource; 4] =
        [VerdictSource::List, VerdictSource::Rule, VerdictSource::Dns, VerdictSource::None];

    /// The value in the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            VerdictSource::List => "list",
            VerdictSource::Rule => "rule",
            VerdictSource::Dns => "dns",
            VerdictSource::None => "none",
        }
    }
}

impl Rule {
    /// All rules, in their order.
    pub const ALL: [Rule; 24] = [
        Rule::Override,
        Rule::SpecialUse,
        Rule::UnknownTld,
        Rule::Protected,
        Rule::Alias,
        Rule::AgentInbox,
        Rule::DisposableA,
        Rule::DisposableB,
        Rule::DisposableC,
        Rule::DisposableD,
        Rule::NoMail,
        Rule::Parked,
        Rule::DisposableMx,
        Rule::Role,
        Rule::Free,
        Rule::LookAlike,
        Rule::Typo,
        Rule::FreeSubdomain,
        Rule::ThrowawayName,
        Rule::DisposableMxAddress,
        Rule::Professional,
        Rule::BulkName,
        Rule::MailInName,
        Rule::Unknown,
    ];

    /// The kind of source that this rule relies on.
    pub const fn verdict_source(self) -> VerdictSource {
        match self {
            Rule::Override
            | Rule::SpecialUse
            | Rule::Protected
            | Rule::Alias
            | Rule::AgentInbox
            | Rule::DisposableA
            | Rule::DisposableB
            | Rule::DisposableC
            | Rule::DisposableD
            | Rule::Role
            | Rule::Free => VerdictSource::List,
            Rule::UnknownTld
            | Rule::LookAlike
            | Rule::Typo
            | Rule::FreeSubdomain
            | Rule::ThrowawayName
            | Rule::BulkName
            | Rule::MailInName => VerdictSource::Rule,
            Rule::NoMail
            | Rule::Parked
            | Rule::DisposableMx
            | Rule::DisposableMxAddress
            | Rule::Professional => VerdictSource::Dns,
            Rule::Unknown => VerdictSource::None,
        }
    }

    /// The name in `table lookup`, `table inspect` and the manifest's `[scores]`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::Override => "override",
            Rule::SpecialUse => "special_use",
            Rule::UnknownTld => "unknown_tld",
            Rule::Protected => "protected",
            Rule::Alias => "alias",
            Rule::AgentInbox => "agent_inbox",
            Rule::DisposableA => "disposable_a",
            Rule::DisposableB => "disposable_b",
            Rule::DisposableC => "disposable_c",
            Rule::DisposableD => "disposable_d",
            Rule::NoMail => "no_mail",
            Rule::Parked => "parked",
            Rule::DisposableMx => "disposable_mx",
            Rule::Role => "role",
            Rule::Free => "free",
            Rule::LookAlike => "look_alike",
            Rule::Typo => "typo",
            Rule::FreeSubdomain => "free_subdomain",
            Rule::ThrowawayName => "throwaway_name",
            Rule::DisposableMxAddress => "disposable_mx_address",
            Rule::Professional => "professional",
            Rule::BulkName => "bulk_name",
            Rule::MailInName => "mail_in_name",
            Rule::Unknown => "unknown",
        }
    }

    /// The rule with this number in a compiled table.
    pub fn from_number(number: u8) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| *rule as u8 == number)
    }
}

/// The verdict on a name. A table stores the name's MX provider label and its sources separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The reason of the score.
    pub reason: Reason,
    /// The risk score.
    pub score: Score,
    /// Whether the domain is a free mailbox provider.
    pub is_free_provider: bool,
    /// Whether the domain is an organisation's own mail domain.
    pub is_corporate_email: bool,
    /// The rule that decided reason and score.
    pub rule: Rule,
}

impl Verdict {
    /// The part of the public answer's JSON that follows the domain. This part begins with the
    /// closing quote of the domain.
    pub fn render_json_tail(&self, label: Option<&str>) -> String {
        let Verdict { reason, score, is_free_provider, is_corporate_email, .. } = self;
        let score = score.value();
        let label = json!(label);
        format!(
            r#"","risk_score":{score},"reason":"{reason}","is_free_provider":{is_free_provider},"is_corporate_email":{is_corporate_email},"mx_provider_label":{label}}}"#
        )
    }
}

#[cfg(test)]
mod tests;
