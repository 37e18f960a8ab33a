// Clerk: a receiver of the webhook `user.created`. The account exists by then: this bans it.
// docs/auth-hooks.md explains this file. Its environment: RISKGATE_URL, such as
// https://riskgate.example.com, RISKGATE_KEY, CLERK_SECRET_KEY and CLERK_WEBHOOK_SIGNING_SECRET.
const express = require("express");
const { clerkClient } = require("@clerk/express");
const { verifyWebhook } = require("@clerk/express/webhooks");

const app = express();
app.post("/hooks/clerk", express.raw({ type: "application/json" }), async (request, response) => {
  const event = await verifyWebhook(request).catch(() => null);
  if (!event) return response.sendStatus(400);
  if (event.type !== "user.created") return response.sendStatus(204);
  const { id, email_addresses: emails, primary_email_address_id: primary } = event.data;
  const email = emails.find((it) => it.id === primary)?.email_address;
  const ip = event.event_attributes?.http_request?.client_ip;
  const decision = await fetch(`${process.env.RISKGATE_URL}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.RISKGATE_KEY}` },
    body: JSON.stringify({ email, ip, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return answer.json();
  }).catch((error) => {
    console.error(`riskgate: no decision: ${error.message}`);
    return {};
  });
  // Without an answer of riskgate there is no action, and the account stays.
  if (decision.action === "block") await clerkClient.users.banUser(id);
  if (decision.action === "review") {
    await clerkClient.users.updateUserMetadata(id, { privateMetadata: { review: decision.rule } });
  }
  response.sendStatus(204);
});
app.listen(process.env.PORT ?? 3000);
