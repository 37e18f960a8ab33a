//! Which plan an account has.

/// The plan of an account for which neither the store nor the key file sets a plan.
pub const DEFAULT_PLAN: &str = "free";

/// Chooses the plan of an account. A plan in the store takes precedence over one in the key file.
pub fn choose_plan<'p>(of_store: Option<&'p str>, of_key_file: Option<&'p str>) -> &'p str {
    of_store.or(of_key_file).unwrap_or(DEFAULT_PLAN)
}
