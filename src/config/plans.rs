//! `[plans]`: the monthly limit of each plan.

use super::settings::Settings;
use super::unknown_keys::hint_for_other_section;
use crate::keys::Plans;
use crate::model::plan::DEFAULT_PLAN;

/// The plans that riskgate ships, with their calls per month.
const SHIPPED_PLANS: [(&str, u64); 4] =
    [("free", 100), ("starter", 1_000), ("pro", 10_000), ("business", 100_000)];

impl Settings {
    /// Reads the plans. A shipped plan that the config does not name has its shipped limit, unless
    /// `plans.shipped` is false.
    pub fn read_plans(&mut self) -> Plans {
        let shipped = match self.read_boolean("plans.shipped", true) {
            true => SHIPPED_PLANS.as_slice(),
            false => &[],
        };
        let hint = |name: &str| {
            let elsewhere = hint_for_other_section("plans", name);
            elsewhere.map(|hint| format!("{hint}: each name below [plans] is a plan"))
        };
        let plans = self.read_plan_limits("plans", shipped, hint);
        self.warn_of_plans_that_differ_by_case(&plans);
        if !plans.contains_key(DEFAULT_PLAN) {
            let hint = Some("write free = 100 below [plans]".to_owned());
            let expected = "a limit for accounts without a plan";
            self.report_required_with_hint("plans.free", expected, hint);
        }
        plans
    }

    fn warn_of_plans_that_differ_by_case(&mut self, plans: &Plans) {
        for name in plans.keys() {
            let key = format!("plans.{name}");
            let is_other = |it: &&String| *it != name && it.eq_ignore_ascii_case(name);
            let Some(other) =
                plans.keys().find(is_other).filter(|_| name.to_ascii_lowercase() != *name)
            else {
                continue;
            };
            let problem = format!(
                "expected {other}, or a name that differs in more than capital letters, because \
                 {name} and {other} are two plans"
            );
            let value = self.values.get(&key).map(|it| it.raw.to_redacted_string());
            let hint = match self.values.contains_key(&format!("plans.{other}")) {
                true => "remove one of the two lines".to_owned(),
                false => format!("write {other} = {}", value.unwrap_or_default()),
            };
            self.warn_at_key(&key, &problem, Some(hint));
        }
    }
}
