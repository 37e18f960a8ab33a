// Firebase Authentication with Identity Platform: a blocking function (2nd generation).
// docs/auth-hooks.md explains this file. Its environment: RISKGATE_URL, such as
// https://riskgate.example.com. Its secret: RISKGATE_KEY.
const { beforeUserCreated, HttpsError } = require("firebase-functions/v2/identity");

exports.assessSignUp = beforeUserCreated({ secrets: ["RISKGATE_KEY"] }, async (event) => {
  const decision = await fetch(`${process.env.RISKGATE_URL}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.RISKGATE_KEY}` },
    body: JSON.stringify({ email: event.data.email, ip: event.ipAddress, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return answer.json();
  }).catch((error) => {
    console.error(`riskgate: no decision: ${error.message}`);
    return {};
  });
  // Without an answer of riskgate there is no action, and the user passes.
  if (decision.action === "block") {
    throw new HttpsError("permission-denied", "Please use another e-mail address.");
  }
  if (decision.action === "review") return { customClaims: { review: true } };
});
