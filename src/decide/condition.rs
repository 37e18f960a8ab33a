//! Conditions of rules: FACT OPERATOR LITERAL, such as `inbox_accounts_30d >= 3`.

use std::ops::Range;

use crate::model::domain::Domain;

use super::facts::{Fact, FactType, FactValue, Facts};

/// The operators, the longer before the shorter that they begin with.
const OPERATORS: [(&str, Operator); 7] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<", Operator::Below),
    (">", Operator::Above),
    ("in", Operator::In),
];

/// Operators of other languages, each with ours.
const OTHER_OPERATORS: [(&str, &str); 8] = [
    ("=", "=="),
    ("===", "=="),
    ("=>", ">="),
    ("=<", "<="),
    ("<>", "!="),
    ("is", "=="),
    ("eq", "=="),
    ("gte", ">="),
];

/// One condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    fact: Fact,
    test: Test,
    text: String,
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionFault {
    /// The bytes of the text that are wrong; empty at its end if something is missing.
    pub at: Range<usize>,
    /// What was expected there.
    pub expected: String,
    /// The words that could stand there.
    pub candidates: &'static [&'static str],
    /// The operator that other languages write so.
    pub meant: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Below,
    AtMost,
    Above,
    AtLeast,
    In,
}

/// What a value is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Number(Operator, u32),
    NumberIn(Vec<u32>),
    Truth(bool),
    /// Whether the text is one of these.
    Text(bool, Vec<String>),
}

/// The names of [`Fact::ALL`].
const FACT_NAMES: [&str; 12] = {
    let mut names = [""; 12];
    let mut index = 0;
    while index < names.len() {
        names[index] = Fact::ALL[index].as_str();
        index += 1;
    }
    names
};
const TRUTHS: [&str; 2] = ["true", "false"];

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// Returns where the text is wrong, and what was expected there.
    pub fn parse(text: &str) -> Result<Condition, ConditionFault> {
        let mut words = Words { text, at: 0 };
        let name = words.take_while(is_word_char);
        let fact = Fact::parse(&text[name.clone()]).ok_or_else(|| {
            let expected = format!("a fact: {}", FACT_NAMES.join(", "));
            ConditionFault { candidates: &FACT_NAMES, ..fault(name.clone(), expected) }
        })?;
        let operator_at = words.skip_blanks();
        let found = OPERATORS.iter().find(|(sign, _)| text[operator_at..].starts_with(sign));
        let Some((sign, operator)) = found else {
            let end = text[operator_at..].find(char::is_whitespace);
            let end = end.map_or(text.len(), |length| operator_at + length);
            let sign = &text[operator_at..end];
            let other = OTHER_OPERATORS.iter().find(|(other, _)| *other == sign);
            return Err(ConditionFault {
                meant: other.map(|(_, own)| *own),
                ..fault(operator_at..end, "an operator: ==, !=, <, <=, >, >= or in")
            });
        };
        words.at += sign.len();
        let operator_at = operator_at..words.at;
        let literals = words.take_literals(*operator == Operator::In)?;
        let rest = words.skip_blanks();
        if rest < text.len() {
            return Err(fault(
                rest..text.len(),
                "the end of the condition; write one condition in \
                                                each text of the list",
            ));
        }
        let test = make_test(fact.fact_type(), *operator, operator_at, &literals)?;
        Ok(Condition { fact, test, text: text.trim().to_owned() })
    }

    /// Whether the condition holds. It does not if its fact has no value.
    pub fn holds(&self, facts: &Facts<'_>) -> bool {
        match (&self.test, facts.value(self.fact)) {
            (Test::Number(operator, number), Some(FactValue::Number(value))) => match operator {
                Operator::Equal => value == *number,
                Operator::NotEqual => value != *number,
                Operator::Below => value < *number,
                Operator::AtMost => value <= *number,
                Operator::Above => value > *number,
                Operator::AtLeast => value >= *number,
                Operator::In => false,
            },
            (Test::NumberIn(numbers), Some(FactValue::Number(value))) => numbers.contains(&value),
            (Test::Truth(expected), Some(FactValue::Truth(value))) => value == *expected,
            (Test::Text(is_one, texts), Some(FactValue::Text(value))) => {
                texts.iter().any(|text| text == value) == *is_one
            }
            _ => false,
        }
    }

    /// The fact that it asks for.
    pub fn fact(&self) -> Fact {
        self.fact
    }

    /// The condition as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A literal: its text without quotes, and where it stands.
struct Literal<'t> {
    text: &'t str,
    at: Range<usize>,
    is_quoted: bool,
}

/// Reads a condition from left to right.
struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    fn skip_blanks(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> Range<usize> {
        let start = self.skip_blanks();
        let rest = &self.text[start..];
        self.at = start + rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        start..self.at
    }

    fn take_char(&mut self, c: char) -> bool {
        self.skip_blanks();
        let is_next = self.text[self.at..].starts_with(c);
        self.at += if is_next { c.len_utf8() } else { 0 };
        is_next
    }

    /// Takes one literal, or the list of an `in`.
    fn take_literals(&mut self, is_list: bool) -> Result<Vec<Literal<'t>>, ConditionFault> {
        if !is_list {
            return Ok(vec![self.take_literal()?]);
        }
        if !self.take_char('[') {
            return Err(fault(self.at..self.text.len(), "a list such as [a, b]"));
        }
        let mut literals = vec![self.take_literal()?];
        while self.take_char(',') {
            literals.push(self.take_literal()?);
        }
        match self.take_char(']') {
            true => Ok(literals),
            false => Err(fault(self.at..self.text.len(), "a comma or ]")),
        }
    }

    fn take_literal(&mut self) -> Result<Literal<'t>, ConditionFault> {
        if self.take_char('"') {
            let start = self.at;
            let Some(length) = self.text[start..].find('"') else {
                return Err(fault(start - 1..self.text.len(), "a \" at the end of the text"));
            };
            self.at = start + length + 1;
            let (text, at) = (&self.text[start..start + length], start - 1..self.at);
            return Ok(Literal { text, at, is_quoted: true });
        }
        let at = self.take_while(|c| is_word_char(c) || matches!(c, '.' | '-'));
        match at.is_empty() {
            true => {
                let rest = at.start..self.text.len();
                Err(fault(rest, "a number, true, false, a word or a quoted text"))
            }
            false => Ok(Literal { text: &self.text[at.clone()], at, is_quoted: false }),
        }
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn fault(at: Range<usize>, expected: impl Into<String>) -> ConditionFault {
    ConditionFault { at, expected: expected.into(), candidates: &[], meant: None }
}

fn make_test(
    fact_type: FactType,
    operator: Operator,
    operator_at: Range<usize>,
    literals: &[Literal<'_>],
) -> Result<Test, ConditionFault> {
    let fits = match fact_type {
        FactType::Number(_) => true,
        FactType::Truth => matches!(operator, Operator::Equal | Operator::NotEqual),
        FactType::Domain | FactType::Word(_) => {
            matches!(operator, Operator::Equal | Operator::NotEqual | Operator::In)
        }
    };
    if !fits {
        return Err(fault(
            operator_at,
            match fact_type {
                FactType::Truth => "== or !=, since the fact is true or false",
                _ => "==, != or in, since the fact is a text",
            },
        ));
    }
    let is_negated = operator == Operator::NotEqual;
    match fact_type {
        FactType::Number(max) => {
            let numbers: Vec<u32> =
                literals.iter().map(|it| parse_number(it, max)).collect::<Result<_, _>>()?;
            Ok(match operator {
                Operator::In => Test::NumberIn(numbers),
                _ => Test::Number(operator, numbers[0]),
            })
        }
        FactType::Truth => {
            let literal = &literals[0];
            let value = match literal.text {
                "true" if !literal.is_quoted => true,
                "false" if !literal.is_quoted => false,
                _ => {
                    let fault = fault(literal.at.clone(), "true or false");
                    return Err(ConditionFault { candidates: &TRUTHS, ..fault });
                }
            };
            Ok(Test::Truth(value != is_negated))
        }
        FactType::Domain => {
            let parse = |literal: &Literal<'_>| match Domain::parse(literal.text) {
                Ok(domain) => Ok(domain.as_str().to_owned()),
                Err(_) => Err(fault(literal.at.clone(), "a domain such as example.com")),
            };
            let names: Result<Vec<String>, ConditionFault> = literals.iter().map(parse).collect();
            Ok(Test::Text(!is_negated, names?))
        }
        FactType::Word(words) => {
            let parse = |literal: &Literal<'_>| match words.contains(&literal.text) {
                true => Ok(literal.text.to_owned()),
                false => {
                    let fault = fault(literal.at.clone(), format!("one of {}", words.join(", ")));
                    Err(ConditionFault { candidates: words, ..fault })
                }
            };
            let words: Result<Vec<String>, ConditionFault> = literals.iter().map(parse).collect();
            Ok(Test::Text(!is_negated, words?))
        }
    }
}

fn parse_number(literal: &Literal<'_>, max: u32) -> Result<u32, ConditionFault> {
    let is_digits = literal.text.bytes().all(|byte| byte.is_ascii_digit()) && !literal.is_quoted;
    let number = literal.text.parse().ok().filter(|number| is_digits && *number <= max);
    number.ok_or_else(|| fault(literal.at.clone(), format!("a whole number of 0 to {max}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::decide::{CountFacts, DomainFacts};
    use crate::model::verdict::{Reason, Rule, Score, VerdictSource};

    use super::*;

    fn facts() -> Facts<'static> {
        Facts {
            domain: Some("example.com"),
            risk_score: Score::new(40).unwrap(),
            reason: Reason::Safe,
            of_domain: Some(DomainFacts {
                verdict_source: VerdictSource::None,
                table_rule: Rule::Unknown,
                is_free_provider: false,
                is_corporate_email: true,
                is_alias: false,
            }),
            is_role: Some(false),
            counts: CountFacts { inbox_accounts_30d: Some(3), ..CountFacts::default() },
        }
    }

    #[test]
    fn conditions_hold_by_their_operator() {
        for (text, holds) in [
            ("inbox_accounts_30d >= 3", true),
            ("inbox_accounts_30d>=4", false),
            ("inbox_accounts_30d > 2", true),
            ("inbox_accounts_30d < 3", false),
            ("inbox_accounts_30d <= 3", true),
            ("inbox_accounts_30d == 3", true),
            ("inbox_accounts_30d != 3", false),
            ("inbox_accounts_30d in [1, 3]", true),
            ("inbox_accounts_30d in [1,2]", false),
            ("risk_score < 50", true),
            ("is_corporate_email == true", true),
            ("is_corporate_email != true", false),
            ("is_role == false", true),
            ("reason == safe", true),
            ("reason == \"safe\"", true),
            ("reason != safe", false),
            ("reason in [disposable, safe]", true),
            ("verdict_source in [list, rule]", false),
            ("  domain   ==   Example.COM  ", true),
            ("domain in [\"a.com\", \"example.com\"]", true),
            ("domain != example.com", false),
        ] {
            let condition =
                Condition::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
            assert_eq!(condition.holds(&facts()), holds, "{text}");
        }
    }

    #[test]
    fn a_fact_without_a_value_never_matches() {
        for text in [
            "domain_accounts_1h >= 0",
            "domain_accounts_1h != 5",
            "domain_accounts_1h < 1000",
            "client_accounts_1h in [0, 1]",
        ] {
            assert!(!Condition::parse(text).unwrap().holds(&facts()), "{text}");
        }
        let unknown = Facts { domain: None, of_domain: None, is_role: None, ..facts() };
        for text in ["domain != a.com", "is_alias == false", "is_role != true"] {
            assert!(!Condition::parse(text).unwrap().holds(&unknown), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_place_of_a_fault_is_a_part_of_the_text(text in "[a-z_]{0,12}.{0,30}") {
            if let Err(fault) = Condition::parse(&text) {
                prop_assert!(text.get(fault.at.clone()).is_some(), "{text:?}: {:?}", fault.at);
            }
        }

        #[test]
        fn conditions_with_any_literal_have_a_place(
            fact in prop::sample::select(FACT_NAMES.to_vec()),
            sign in prop::sample::select(vec!["==", "!=", "<", ">=", "in", "=", ""]),
            literal in ".{0,20}",
        ) {
            let text = format!("{fact} {sign} {literal}");
            if let Err(fault) = Condition::parse(&text) {
                prop_assert!(text.get(fault.at.clone()).is_some(), "{text:?}: {:?}", fault.at);
            }
        }
    }

    #[test]
    fn a_fault_says_where_and_what_was_expected() {
        for (text, at, expected) in [
            ("", 0..0, "a fact: domain, risk_score"),
            ("inbox_accounts >= 3", 0..14, "a fact: domain"),
            ("risk_score", 10..10, "an operator"),
            ("risk_score => 3", 11..13, "an operator"),
            ("risk_score = 3", 11..12, "an operator"),
            ("risk_score >=", 13..13, "a number, true"),
            ("risk_score >= x", 14..15, "a whole number of 0 to 100"),
            ("risk_score >= 101", 14..17, "a whole number of 0 to 100"),
            ("risk_score >= \"50\"", 14..18, "a whole number of 0 to 100"),
            ("risk_score >= -1", 14..16, "a whole number of 0 to 100"),
            ("inbox_accounts_30d >= 1001", 22..26, "a whole number of 0 to 1000"),
            ("is_role >= true", 8..10, "== or !="),
            ("is_role == yes", 11..14, "true or false"),
            ("is_role == \"true\"", 11..17, "true or false"),
            ("reason < safe", 7..8, "==, != or in"),
            ("reason == spam", 10..14, "one of safe, disposable"),
            ("reason in safe", 10..14, "a list such as [a, b]"),
            ("reason in []", 11..12, "a number, true"),
            ("reason in [safe", 15..15, "a comma or ]"),
            ("domain == a b", 12..13, "the end of the condition"),
            ("domain == -", 10..11, "a domain such as example.com"),
            ("domain == \"a.com", 10..16, "a \" at the end"),
            ("risk_score >= 3 and is_role == true", 16..35, "the end of the condition"),
        ] {
            let fault = Condition::parse(text).expect_err(text);
            assert_eq!(fault.at, at, "{text}");
            assert!(fault.expected.starts_with(expected), "{text}: {}", fault.expected);
        }
    }
}
