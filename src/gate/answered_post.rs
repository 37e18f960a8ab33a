//! Posts that riskgate answers itself, by what is in the body: a batch of domains, and an
//! assessment.

use std::time::Duration;

use http::Method;
use pingora::Result;
use pingora_proxy::Session;
use tokio::time::timeout;

use crate::exchange::BodyFault;
use crate::model::refusal::Refusal;

use super::admission::OriginHeader;
use super::held_bytes::{
    HeldBytesGuard, NO_MEMORY_REFUSAL, PINGORA_TASK_BYTES, waiting_request_bytes,
};
use super::request_context::RequestContext;
use super::route::{Route, match_builtin_path, split_path_and_query};
use super::session::send_continue_if_awaited;
use super::state::Gate;
use super::{assess, domain_batch};

/// The longest time from the gates before the quota to the end of the body.
const POST_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// A post that riskgate answers itself.
#[derive(Clone, Copy)]
pub(super) enum AnsweredPost {
    DomainBatch,
    Assessment,
}

impl AnsweredPost {
    /// The longest body, in bytes.
    fn max_body_bytes(self) -> usize {
        match self {
            AnsweredPost::DomainBatch => domain_batch::MAX_BODY_BYTES,
            AnsweredPost::Assessment => assess::MAX_BODY_BYTES,
        }
    }

    /// The refusal of a body in which riskgate did not find what it expected.
    fn refusal(self, expected: String) -> Refusal {
        match self {
            AnsweredPost::DomainBatch => Refusal::InvalidBatch(expected),
            AnsweredPost::Assessment => Refusal::InvalidAssessment(expected),
        }
    }
}

impl Gate {
    /// Returns which post a request is; `None` if riskgate reads no body to answer it.
    pub(super) fn find_answered_post(&self, session: &Session) -> Option<AnsweredPost> {
        let header = session.req_header();
        if header.method != Method::POST {
            return None;
        }
        match match_builtin_path(split_path_and_query(header.raw_path()).0)? {
            Route::DomainBatch => Some(AnsweredPost::DomainBatch),
            Route::Assess => Some(AnsweredPost::Assessment),
            _ => None,
        }
    }

    /// Answers the request. riskgate runs the gates for key, origin and `max_per_client`, reads the
    /// body, and then runs the gate for the quota.
    ///
    /// # Errors
    /// Returns an error if riskgate can't read from the client or can't write to it.
    pub(super) async fn answer_post(
        &self,
        post: AnsweredPost,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let request = self.read_parts(session.req_header());
        let admitted = self.match_route_and_pass_gates(&request, ctx).map(drop);
        let mut held = self.begin_held_body(ctx);
        let names_origin = !matches!(request.origin, OriginHeader::Absent);
        let answered = match &admitted {
            Err(refusal) => Err(refusal.clone()),
            Ok(()) => match self.read_post_body(post, session, &mut held).await? {
                Err(refusal) => Err(refusal),
                Ok(body) => match post {
                    AnsweredPost::DomainBatch => {
                        self.answer_domain_batch(&body, &mut held, ctx).await
                    }
                    AnsweredPost::Assessment => self.assess(&body, names_origin, ctx).await,
                },
            },
        };
        let reply = match answered {
            Ok(reply) => {
                ctx.set_outcome_if_unset(reply.status(), "ok");
                reply
            }
            Err(refusal) => self.finish_with_refusal(&refusal, ctx),
        };
        ctx.send_reply(&reply, session).await
    }

    /// Reads the whole body. Returns a refusal if the body is too long, too late or malformed, or
    /// if the memory for bodies is used up.
    async fn read_post_body(
        &self,
        post: AnsweredPost,
        session: &mut Session,
        held: &mut HeldBytesGuard,
    ) -> Result<Result<Vec<u8>, Refusal>> {
        send_continue_if_awaited(session).await?;
        let client = session.as_downstream_mut();
        let max_bytes = post.max_body_bytes();
        let request_bytes = waiting_request_bytes(client.req_header(), PINGORA_TASK_BYTES);
        let read_to_end = async {
            let mut body = Vec::new();
            loop {
                let read = client.read_request_body();
                let waiting_bytes = body.len().max(request_bytes);
                let Some(read) = held.count_during(read, waiting_bytes).await else {
                    return Ok(Err(NO_MEMORY_REFUSAL));
                };
                let Some(bytes) = read? else { return Ok(Ok(body)) };
                if body.len() + bytes.len() > max_bytes {
                    return Ok(Err(post.refusal(format!("expected at most {max_bytes} bytes"))));
                }
                if !held.grow_to(body.len() + bytes.len()) {
                    return Ok(Err(NO_MEMORY_REFUSAL));
                }
                body.extend_from_slice(&bytes);
            }
        };
        let read: std::result::Result<Result<_>, _> = timeout(POST_BODY_TIMEOUT, read_to_end).await;
        match read {
            Ok(Ok(read)) => {
                held.shrink_to(read.as_ref().map_or(0, Vec::len));
                Ok(read)
            }
            Ok(Err(error)) => match BodyFault::find_in(&error) {
                Some(fault) => Ok(Err(fault.refusal())),
                None => Err(error.into_down()),
            },
            Err(_) => Ok(Err(Refusal::RequestTimeout)),
        }
    }
}
