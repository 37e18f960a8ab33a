// Supabase Auth: an Edge Function for the hook "Before User Created". docs/auth-hooks.md explains
// this file. Its secrets: RISKGATE_URL, such as https://riskgate.example.com, RISKGATE_KEY, and
// HOOK_SECRET, as Supabase shows it (v1,whsec_…).
import { Webhook } from "npm:standardwebhooks@1.0.0";

Deno.serve(async (request) => {
  const webhook = new Webhook(Deno.env.get("HOOK_SECRET").replace("v1,whsec_", ""));
  const headers = Object.fromEntries(request.headers);
  const { user, metadata } = webhook.verify(await request.text(), headers);
  const decision = await fetch(`${Deno.env.get("RISKGATE_URL")}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${Deno.env.get("RISKGATE_KEY")}` },
    body: JSON.stringify({ email: user.email, ip: metadata.ip_address, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return answer.json();
  }).catch((error) => {
    console.error(`riskgate: no decision: ${error.message}`);
    return {};
  });
  // Without an answer of riskgate there is no action, and the user passes. Supabase reads the
  // error only if the status is 200.
  const error = { http_code: 422, message: "Please use another e-mail address." };
  return Response.json(decision.action === "block" ? { error } : {});
});
