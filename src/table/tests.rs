//! The table as a whole: the rules of matching and of deciding, on small lists and on ours.

mod added;
mod bundled;
mod compiled;
mod faults;
mod inferred;
mod learned;
mod lookup;
mod succession;
mod support;
