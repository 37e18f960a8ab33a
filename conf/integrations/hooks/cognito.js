// Amazon Cognito: a Lambda function (Node.js) for the trigger "Pre sign-up". docs/auth-hooks.md
// explains this file. Its environment: RISKGATE_URL, such as https://riskgate.example.com, and
// RISKGATE_KEY.
exports.handler = async (event) => {
  // An administrator creates this user.
  if (event.triggerSource === "PreSignUp_AdminCreateUser") return event;
  const decision = await fetch(`${process.env.RISKGATE_URL}/v1/assess`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env.RISKGATE_KEY}` },
    body: JSON.stringify({ email: event.request.userAttributes.email, count: true }),
    signal: AbortSignal.timeout(1000),
  }).then((answer) => {
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    return answer.json();
  }).catch((error) => {
    console.error(`riskgate: no decision: ${error.message}`);
    return {};
  });
  // Without an answer of riskgate there is no action, and the user passes.
  if (decision.action === "block") throw new Error("Please use another e-mail address.");
  return event;
};
