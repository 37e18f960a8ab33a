//! What a page in a browser posts and may read: forms, origins, sign-up pages.

mod browser_forms;
mod client_forms;
mod origins;
mod screening;
mod sites;
