//! Chooses the override of a name. An override in the operator's own file takes precedence, then an
//! override of the store, then one of the lists. Within each of the three, the nearest applies.

use super::EntryBuilder;
use crate::table::inheritance::InheritedFacts;
use crate::table::manifest::ListOrigin;
use crate::table::rows::ParsedLists;
use crate::table::rules::OverrideRow;

impl<'r> EntryBuilder<'r> {
    /// Finds the numbers of the overrides that apply to the name itself, to names below it, and to
    /// names below it across public suffixes; `None` where no override applies.
    pub(super) fn find_override_numbers(
        &self,
        name: &str,
        inherited_facts: &InheritedFacts,
    ) -> [Option<u32>; 3] {
        let of_subtree = self.inheritable_by_name.get(name);
        let of_name = self.exact_override_numbers.get(name).copied().unwrap_or_default();
        let subtree_overrides = [
            of_subtree.map_or(0, |facts| facts.subtree_override_number),
            inherited_facts.file_override_number,
            inherited_facts.stored_override_number,
            inherited_facts.of_parents.subtree_override_number,
        ];
        let covering = self.select_override_number(&subtree_overrides);
        let own = self.select_override_number(&[&[of_name][..], &subtree_overrides].concat());
        [own, covering, covering]
    }

    /// Selects the override that applies, by the precedence of this module. A number of 0 stands
    /// for no override.
    fn select_override_number(&self, numbers_nearest_first: &[u32]) -> Option<u32> {
        let of_origin = |origin: ListOrigin| {
            let mut numbers = numbers_nearest_first.iter();
            numbers.find(|number| self.override_origin(**number) == Some(origin))
        };
        of_origin(ListOrigin::Operator)
            .or_else(|| of_origin(ListOrigin::Store))
            .or_else(|| numbers_nearest_first.iter().find(|number| **number != 0))
            .copied()
    }

    /// Whether an override is in the operator's file or in the store.
    pub(super) fn is_operator_override(&self, number: u32) -> bool {
        let origin = self.override_origin(number);
        matches!(origin, Some(ListOrigin::Operator | ListOrigin::Store))
    }

    /// Where an override comes from; `None` for the number 0.
    pub(super) fn override_origin(&self, number: u32) -> Option<ListOrigin> {
        let row = self.find_override_row(number)?;
        Some(self.manifest.list_specs[usize::from(row.list_number)].list_origin)
    }

    pub(super) fn find_override_row(&self, number: u32) -> Option<&'r OverrideRow<'r>> {
        let lists: &'r ParsedLists<'r> = self.lists;
        number.checked_sub(1).and_then(|index| lists.overrides.get(index as usize))
    }
}
