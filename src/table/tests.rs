//! Tests of look-ups in whole tables, built from small lists and from the bundled lists.

mod added_lists;
mod bundled;
mod compiled;
mod dns_facts;
mod evidence;
mod faults;
mod lookup;
mod parent_promotion;
mod slips;
mod succession;
mod suggestions;
mod support;
mod unlisted_rules;
