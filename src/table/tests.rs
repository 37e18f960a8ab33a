//! The table as a whole: the rules of matching and of deciding, on small lists and on ours.

mod added_lists;
mod bundled;
mod compiled;
mod dns_facts;
mod faults;
mod inference;
mod lookup;
mod succession;
mod support;
