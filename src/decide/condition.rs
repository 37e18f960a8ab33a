//! Conditions of rules: FACT OPERATOR LITERAL, such as `inbox_accounts_30d >= 3`.

use std::ops::{Range, RangeInclusive};

use crate::model::domain::Domain;

use super::facts::{Fact, FactType, FactValue, Facts, MAX_COUNT};

const OPERATORS: [(&str, Operator); 7] = [
    ("==", Operator::Relation(Relation::Equal)),
    ("!=", Operator::Relation(Relation::NotEqual)),
    ("<", Operator::Relation(Relation::Below)),
    ("<=", Operator::Relation(Relation::AtMost)),
    (">", Operator::Relation(Relation::Above)),
    (">=", Operator::Relation(Relation::AtLeast)),
    ("in", Operator::In),
];

/// Words that people write in place of a fact, each with what to write instead.
const FOREIGN_FACT_NAMES: [(&[&str], &str); 4] = [
    (
        &["email", "address", "mail", "host"],
        "domain, as in domain in [example.com]: rules know no addresses",
    ),
    (&["score", "risk"], "risk_score"),
    (&["disposable", "is_disposable", "throwaway"], "reason == disposable"),
    (&["client", "ip", "inbox"], "a count, such as client_accounts_1h or inbox_accounts_30d"),
];

const NO_PATTERNS_HINT: &str = "== or in, with whole names: rules have no patterns";
/// Operators of other languages, each with what to write instead.
const FOREIGN_OPERATORS: [(&str, &str); 36] = [
    ("contains", NO_PATTERNS_HINT),
    ("like", NO_PATTERNS_HINT),
    ("matches", NO_PATTERNS_HINT),
    ("startswith", NO_PATTERNS_HINT),
    ("starts_with", NO_PATTERNS_HINT),
    ("endswith", NO_PATTERNS_HINT),
    ("ends_with", NO_PATTERNS_HINT),
    ("ends with", NO_PATTERNS_HINT),
    ("starts with", NO_PATTERNS_HINT),
    ("ends", NO_PATTERNS_HINT),
    ("starts", NO_PATTERNS_HINT),
    ("regex", NO_PATTERNS_HINT),
    ("~", NO_PATTERNS_HINT),
    ("=~", NO_PATTERNS_HINT),
    ("=", "=="),
    ("===", "=="),
    ("is", "=="),
    ("eq", "=="),
    ("equals", "=="),
    ("!==", "!="),
    ("<>", "!="),
    ("≠", "!="),
    ("is not", "!="),
    ("ne", "!="),
    ("lt", "<"),
    ("=<", "<="),
    ("≤", "<="),
    ("le", "<="),
    ("lte", "<="),
    ("gt", ">"),
    ("=>", ">="),
    ("≥", ">="),
    ("ge", ">="),
    ("gte", ">="),
    ("∈", "in"),
    ("not in", "a condition with != for each value"),
];

/// One condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    fact: Fact,
    comparison: Comparison,
    text: String,
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionFault {
    /// The bytes of the text that are wrong; an empty range if something is missing.
    pub at: Range<usize>,
    /// What was expected there.
    pub expected: String,
    /// The words that could stand there.
    pub candidates: &'static [&'static str],
    /// What to write instead, if riskgate can tell.
    pub meant: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Relation(Relation),
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// What a condition says about the value of its fact.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Comparison {
    Number(Relation, u32),
    NumberIn(Vec<u32>),
    Truth(bool),
    /// With `true`, the text is one of these; with `false`, it is none of them.
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
        let mut scanner = Scanner { text, at: 0 };
        let name = scanner.take_while(is_word_char);
        let fact = Fact::parse(&text[name.clone()]).ok_or_else(|| scanner.fault_in_fact(name))?;
        let (operator, operator_at) = scanner.take_operator().map_err(|found| {
            let is_alone = found.at.is_empty() && fact.fact_type() == FactType::Truth;
            ConditionFault {
                meant: is_alone.then(|| "== true behind it".to_owned()).or(found.meant),
                ..found
            }
        })?;
        let literals = scanner.take_literals(operator)?;
        let rest = scanner.skip_blanks();
        if rest < text.len() {
            let expected = "the end of the condition; write one condition in each text of the list";
            let (word, second) = text[rest..].split_once(' ').unwrap_or((&text[rest..], ""));
            let meant = match word {
                "and" | "AND" | "&&" | "&" if !second.is_empty() => {
                    let several = split_several_conditions(text).unwrap_or_default();
                    let quoted: Vec<String> = several.iter().map(|it| quote(it)).collect();
                    Some(quoted.join(", ")).filter(|it| !it.is_empty())
                }
                "or" | "OR" | "||" => Some("a rule of its own for each".to_owned()),
                _ if word.starts_with('%') => Some("the number without %".to_owned()),
                _ => None,
            };
            return Err(ConditionFault { meant, ..fault(rest..text.len(), expected) });
        }
        let comparison = make_comparison(fact.fact_type(), operator, operator_at, &literals)?;
        Ok(Condition { fact, comparison, text: text.trim().to_owned() })
    }

    /// Whether the condition holds. A condition about a fact without a value never holds.
    pub fn holds(&self, facts: &Facts<'_>) -> bool {
        match (&self.comparison, facts.value(self.fact)) {
            (Comparison::Number(relation, number), Some(FactValue::Number(value))) => {
                relation.holds(value, *number)
            }
            (Comparison::NumberIn(numbers), Some(FactValue::Number(value))) => {
                numbers.contains(&value)
            }
            (Comparison::Truth(expected), Some(FactValue::Truth(value))) => value == *expected,
            (Comparison::Text(is_one, texts), Some(FactValue::Text(value))) => {
                texts.iter().any(|text| text == value) == *is_one
            }
            _ => false,
        }
    }

    /// The fact that the condition is about.
    pub fn fact(&self) -> Fact {
        self.fact
    }

    /// The condition as it was written, without blanks around it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Relation {
    fn holds(self, value: u32, number: u32) -> bool {
        match self {
            Relation::Equal => value == number,
            Relation::NotEqual => value != number,
            Relation::Below => value < number,
            Relation::AtMost => value <= number,
            Relation::Above => value > number,
            Relation::AtLeast => value >= number,
        }
    }

    /// The numbers to compare with, so that the relation holds for some value of 0 to `max`.
    fn find_sensible_numbers(self, max: u32) -> RangeInclusive<u32> {
        match self {
            Relation::Below => 1..=max,
            Relation::Above => 0..=max - 1,
            _ => 0..=max,
        }
    }
}

/// A literal: its text without quotes, and its place in the condition.
struct Literal<'t> {
    text: &'t str,
    at: Range<usize>,
    is_quoted: bool,
}

/// Reads a condition from left to right.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
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

    /// The fault of a condition that does not begin with a fact. `word` is the place of its first
    /// word.
    fn fault_in_fact(&self, word: Range<usize>) -> ConditionFault {
        let expected = format!("a fact: {}", FACT_NAMES.join(", "));
        let sign = self.text[word.start..].chars().next().filter(|_| word.is_empty());
        let at = word.start..word.end + sign.map_or(0, char::len_utf8);
        let is_negation = sign == Some('!') || self.text[at.clone()].eq_ignore_ascii_case("not");
        let word = self.text[at.clone()].to_ascii_lowercase();
        let other = FOREIGN_FACT_NAMES.iter().find(|(words, _)| words.contains(&word.as_str()));
        let negation = is_negation.then_some("== false behind the fact instead");
        let meant = negation.or(other.map(|(_, own)| *own)).map(str::to_owned);
        let meant = swap_sides(self.text).or(meant);
        ConditionFault { candidates: &FACT_NAMES, meant, ..fault(at, expected) }
    }

    fn take_char(&mut self, c: char) -> bool {
        self.skip_blanks();
        let is_next = self.text[self.at..].starts_with(c);
        self.at += if is_next { c.len_utf8() } else { 0 };
        is_next
    }

    /// Takes a whole sign or word, and finds the operator of this spelling. So `===` is a fault,
    /// and never `==` before a literal.
    fn take_operator(&mut self) -> Result<(Operator, Range<usize>), ConditionFault> {
        let mut at = self.take_while(is_sign_char);
        if at.is_empty() {
            at = self.take_while(is_word_char);
        }
        if at.is_empty() {
            at = self.take_while(|c| !c.is_whitespace());
        }
        let found = &self.text[at.clone()];
        if let Some((_, operator)) = OPERATORS.iter().find(|(sign, _)| *sign == found) {
            return Ok((*operator, at));
        }
        let second = self.take_while(is_word_char);
        let both = format!("{found} {}", &self.text[second.clone()]);
        let find = |sign: &str| {
            let other = FOREIGN_OPERATORS.iter().find(|(it, _)| it.eq_ignore_ascii_case(sign));
            let own = OPERATORS.iter().find(|(it, _)| it.eq_ignore_ascii_case(sign));
            other.map(|(_, own)| *own).or_else(|| own.map(|(own, _)| *own))
        };
        let expected = "an operator: ==, !=, <, <=, >, >= or in";
        Err(match find(&both) {
            Some(own) => {
                let meant = Some(own.to_owned());
                ConditionFault { meant, ..fault(at.start..second.end, expected) }
            }
            None => {
                let range = || {
                    found.eq_ignore_ascii_case("between").then(|| conditions_for_range(self.text))
                };
                let meant = find(found).map(str::to_owned).or_else(|| range().flatten());
                ConditionFault { meant, ..fault(at, expected) }
            }
        })
    }

    /// Takes one literal, or the list of an `in`.
    fn take_literals(&mut self, operator: Operator) -> Result<Vec<Literal<'t>>, ConditionFault> {
        if operator != Operator::In {
            return Ok(vec![self.take_literal()?]);
        }
        if !self.take_char('[') {
            let rest = self.text[self.at..].trim().trim_matches(['(', ')', '{', '}']);
            let is_of_list = |c: char| is_literal_char(c) || matches!(c, ',' | ' ');
            let is_list = !rest.is_empty() && rest.chars().all(is_of_list);
            let meant =
                conditions_for_range(self.text).or_else(|| is_list.then(|| format!("[{rest}]")));
            let is_file = [".txt", ".csv", ".conf", ".list"].iter().any(|it| rest.ends_with(it));
            let hint = "a list in the rule, such as [a.com, b.com]: rules read no files; \
                        [[table.feed]] and table.overrides do";
            let meant = if is_file { Some(hint.to_owned()) } else { meant };
            let fault = fault(self.at..self.text.len(), "a list such as [a, b]");
            return Err(ConditionFault { meant, ..fault });
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
        let at = self.take_while(is_literal_char);
        match at.is_empty() {
            true => {
                let rest = at.start..self.text.len();
                let text = self.text[rest.clone()].trim();
                let inner = text.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
                let plain = self.text.replace('\'', "");
                // A text without `'` would be parsed for ever.
                let is_list = plain.len() < self.text.len()
                    && plain.contains('[')
                    && Condition::parse(&plain).is_ok();
                let meant = is_list.then_some(plain.trim()).or(inner);
                let meant = meant.map(|it| format!("{it}, without quotes"));
                let expected = "a number, true, false, a word or a quoted text";
                Err(ConditionFault { meant, ..fault(rest, expected) })
            }
            false => Ok(Literal { text: &self.text[at.clone()], at, is_quoted: false }),
        }
    }
}

/// Returns a text between quotes, as TOML has it.
fn quote(text: &str) -> String {
    let quote = if text.contains('"') { '\'' } else { '"' };
    format!("{quote}{text}{quote}")
}

/// Returns the conditions in one text with `&&` or `and` between them, each complete. `None` if a
/// part is no condition.
pub fn split_several_conditions(text: &str) -> Option<Vec<String>> {
    let text =
        [" and ", " AND ", " & "].iter().fold(text.to_owned(), |it, and| it.replace(and, "&&"));
    let condition = |part: &str| {
        let part = part.trim();
        let forms = [
            part.to_owned(),
            format!("{part} == true"),
            format!("{} == false", part.trim_start_matches(['!', ' '])),
        ];
        forms.into_iter().find(|it| Condition::parse(it).is_ok())
    };
    let parts: Vec<&str> = text.split("&&").filter(|_| text.contains("&&")).collect();
    parts.into_iter().map(condition).collect::<Option<Vec<_>>>().filter(|all| all.len() > 1)
}

/// Returns the conditions that somebody means who writes the fact behind a value, as in
/// `80 <= risk_score` or `10 < risk_score < 80`. `None` for any other text.
fn swap_sides(text: &str) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    let mut words = Vec::new();
    while scanner.skip_blanks() < text.len() {
        let signs = scanner.take_while(is_sign_char);
        let word = match signs.is_empty() {
            true => scanner.take_while(|c| is_literal_char(c) || c == '"'),
            false => signs,
        };
        let is_end = word.is_empty();
        words.push(&text[word]);
        if is_end {
            return None;
        }
    }
    let (value, sign, fact, rest) = match words[..] {
        [value, sign, fact] => (value, sign, fact, None),
        [value, sign, fact, second, other] => (value, sign, fact, Some((second, other))),
        _ => return None,
    };
    let mirrored = [("<", ">"), ("<=", ">="), (">", "<"), (">=", "<="), ("==", "=="), ("!=", "!=")];
    let sign = mirrored.iter().find(|(one, _)| *one == sign)?.1;
    Fact::parse(fact)?;
    let first = format!("{fact} {sign} {value}");
    Some(match rest {
        None => first,
        Some((second, other)) => format!("\"{first}\", \"{fact} {second} {other}\""),
    })
}

/// Returns the conditions that somebody means who writes a range, as in `risk_score in 10..80` or
/// `risk_score between 10 and 80`. `None` for any other text.
fn conditions_for_range(text: &str) -> Option<String> {
    let (fact, range) = text.trim().split_once(' ')?;
    let is_word =
        |word: &&str| !word.is_empty() && !matches!(*word, "in" | "between" | "and" | "to");
    let mut numbers = range.split(|c: char| !is_word_char(c)).filter(is_word);
    let (from, to) = (numbers.next()?, numbers.next()?);
    let is_number = |word: &str| word.parse::<u32>().is_ok();
    let is_list = range.contains(',') && !range.contains("between");
    let is_range = numbers.next().is_none() && is_number(from) && is_number(to) && !is_list;
    is_range.then(|| format!("\"{fact} >= {from}\", \"{fact} <= {to}\""))
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a character may be in a literal without quotes. Includes the characters of patterns and
/// addresses, so that a fault names the whole pattern or address.
fn is_literal_char(c: char) -> bool {
    is_word_char(c) || matches!(c, '.' | '-' | '*' | '@')
}

fn is_sign_char(c: char) -> bool {
    let is_of_literal = matches!(c, '"' | '\'' | '[' | ']' | '(' | ')' | ',') || is_literal_char(c);
    !is_word_char(c) && !c.is_whitespace() && !is_of_literal
}

/// Returns the index of the first condition that contradicts the conditions before it about the
/// same fact, or about the other count of a domain.
pub fn find_contradiction(conditions: &[Condition]) -> Option<usize> {
    (1..conditions.len()).find(|last| {
        let (fact, first) = (conditions[*last].fact, &conditions[..=*last]);
        !can_hold_together(fact.fact_type(), &list_comparisons_of(fact, first))
            || !can_hourly_count_fit_daily_count(first)
    })
}

fn list_comparisons_of(fact: Fact, conditions: &[Condition]) -> Vec<&Comparison> {
    conditions.iter().filter(|it| it.fact == fact).map(|it| &it.comparison).collect()
}

/// Whether the counts of a domain for an hour and for a day have values with which all conditions
/// hold. The sign-ups of the hour are among those of the day.
fn can_hourly_count_fit_daily_count(conditions: &[Condition]) -> bool {
    let hour = list_comparisons_of(Fact::DomainAccounts1h, conditions);
    let day = list_comparisons_of(Fact::DomainAccounts1d, conditions);
    let least_of_hour = (0..=MAX_COUNT).find(|value| hold_for_number(&hour, *value));
    let most_of_day = (0..=MAX_COUNT).rev().find(|value| hold_for_number(&day, *value));
    least_of_hour.is_none_or(|least| most_of_day.is_none_or(|most| least <= most))
}

fn hold_for_number(comparisons: &[&Comparison], value: u32) -> bool {
    comparisons.iter().all(|it| match it {
        Comparison::Number(relation, number) => relation.holds(value, *number),
        Comparison::NumberIn(numbers) => numbers.contains(&value),
        _ => true,
    })
}

/// Whether a fact of this type has a value with which all these comparisons hold.
fn can_hold_together(fact_type: FactType, comparisons: &[&Comparison]) -> bool {
    let holds_for_text = |value: &str| {
        comparisons.iter().all(|it| match it {
            Comparison::Text(is_one, texts) => texts.iter().any(|it| it == value) == *is_one,
            _ => true,
        })
    };
    let mut listed = comparisons.iter().filter_map(|it| match it {
        Comparison::Text(true, texts) => Some(texts),
        _ => None,
    });
    match fact_type {
        FactType::Number(max) => (0..=max).any(|value| hold_for_number(comparisons, value)),
        FactType::Truth => comparisons.iter().all(|it| *it == comparisons[0]),
        FactType::Word(words) => words.iter().any(|word| holds_for_text(word)),
        // Conditions that list no domains hold for some domain.
        FactType::Domain => listed.next().is_none_or(|all| all.iter().any(|it| holds_for_text(it))),
    }
}

fn fault(at: Range<usize>, expected: impl Into<String>) -> ConditionFault {
    ConditionFault { at, expected: expected.into(), candidates: &[], meant: None }
}

fn make_comparison(
    fact_type: FactType,
    operator: Operator,
    operator_at: Range<usize>,
    literals: &[Literal<'_>],
) -> Result<Comparison, ConditionFault> {
    let is_negated = operator == Operator::Relation(Relation::NotEqual);
    let is_equality = is_negated || operator == Operator::Relation(Relation::Equal);
    match fact_type {
        FactType::Truth if !is_equality => {
            Err(fault(operator_at, "== or !=, since the fact is true or false"))
        }
        FactType::Domain | FactType::Word(_) if !is_equality && operator != Operator::In => {
            Err(fault(operator_at, "==, != or in, since the fact is a text"))
        }
        FactType::Number(max) => match operator {
            Operator::Relation(relation) => {
                let number = parse_number(&literals[0], relation.find_sensible_numbers(max))?;
                Ok(Comparison::Number(relation, number))
            }
            Operator::In => {
                let numbers = literals.iter().map(|it| parse_number(it, 0..=max));
                Ok(Comparison::NumberIn(numbers.collect::<Result<_, _>>()?))
            }
        },
        FactType::Truth => Ok(Comparison::Truth(parse_truth(&literals[0])? != is_negated)),
        FactType::Domain => {
            let names = literals.iter().map(parse_domain);
            Ok(Comparison::Text(!is_negated, names.collect::<Result<_, _>>()?))
        }
        FactType::Word(words) => {
            let words = literals.iter().map(|it| parse_word(it, words));
            Ok(Comparison::Text(!is_negated, words.collect::<Result<_, _>>()?))
        }
    }
}

fn parse_number(
    literal: &Literal<'_>,
    sensible: RangeInclusive<u32>,
) -> Result<u32, ConditionFault> {
    let is_digits = literal.text.bytes().all(|byte| byte.is_ascii_digit()) && !literal.is_quoted;
    let number = literal.text.parse().ok().filter(|it| is_digits && sensible.contains(it));
    let (least, most) = (sensible.start(), sensible.end());
    let expected = || format!("a whole number of {least} to {most}");
    number.ok_or_else(|| {
        let digits = literal.text.replace(['_', ',', '\''], "");
        let is_meant = digits.parse().is_ok_and(|number| sensible.contains(&number));
        let percent = literal.text.parse().ok().filter(|it: &f64| (0.0..=1.0).contains(it));
        let percent = percent.filter(|_| *most == 100).map(|it| (it * 100.0).round().to_string());
        let is_above = literal.text.parse().is_ok_and(|it: u64| it > u64::from(*most));
        let is_high_count = is_digits && is_above && *most >= MAX_COUNT - 1;
        let highest = is_high_count.then(|| format!("{most}: a count stops at {MAX_COUNT}"));
        let meant = is_meant.then(|| "only the digits".to_owned()).or(percent).or(highest);
        ConditionFault { meant, ..fault(literal.at.clone(), expected()) }
    })
}

fn parse_truth(literal: &Literal<'_>) -> Result<bool, ConditionFault> {
    match literal.text {
        "true" if !literal.is_quoted => Ok(true),
        "false" if !literal.is_quoted => Ok(false),
        _ => {
            let fault = fault(literal.at.clone(), "true or false");
            let meant = match literal.text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "1" | "true" => Some("true".to_owned()),
                "no" | "off" | "0" | "false" => Some("false".to_owned()),
                _ => None,
            };
            Err(ConditionFault { candidates: &TRUTHS, meant, ..fault })
        }
    }
}

fn parse_domain(literal: &Literal<'_>) -> Result<String, ConditionFault> {
    match Domain::parse(literal.text) {
        Ok(domain) => Ok(domain.as_str().to_owned()),
        Err(_) => {
            // An address, a pattern, or the end of a name.
            let domain = literal.text.rsplit('@').next().unwrap_or_default();
            let is_address = literal.text.contains('@') && Domain::parse(domain).is_ok();
            let is_pattern = literal.text.starts_with(['*', '.']);
            let is_label = !literal.text.contains('.')
                && Domain::parse(&format!("{}.com", literal.text)).is_ok();
            let meant = match is_address {
                true => Some(format!("{domain}: rules know no addresses")),
                false if is_pattern => {
                    let each = "each domain, as in domain in [example.com, mail.example.com]";
                    Some(format!("{each}: rules have no patterns"))
                }
                false if is_label => Some("a whole domain: it has a dot".to_owned()),
                false => None,
            };
            let fault = fault(literal.at.clone(), "a domain such as example.com");
            Err(ConditionFault { meant, ..fault })
        }
    }
}

fn parse_word(
    literal: &Literal<'_>,
    words: &'static [&'static str],
) -> Result<String, ConditionFault> {
    if words.contains(&literal.text) {
        return Ok(literal.text.to_owned());
    }
    let fault = fault(literal.at.clone(), format!("one of {}", words.join(", ")));
    Err(ConditionFault { candidates: words, ..fault })
}

#[cfg(test)]
mod tests;
