// Keycloak: a form action of the flow "registration". docs/auth-hooks.md explains this file. The
// environment of Keycloak: RISKGATE_URL, such as https://riskgate.example.com, and RISKGATE_KEY.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.jboss.logging.Logger;
import org.keycloak.Config;
import org.keycloak.authentication.FormAction;
import org.keycloak.authentication.FormActionFactory;
import org.keycloak.authentication.FormContext;
import org.keycloak.authentication.ValidationContext;
import org.keycloak.events.Errors;
import org.keycloak.forms.login.LoginFormsProvider;
import org.keycloak.models.AuthenticationExecutionModel.Requirement;
import org.keycloak.models.KeycloakSession;
import org.keycloak.models.KeycloakSessionFactory;
import org.keycloak.models.RealmModel;
import org.keycloak.models.UserModel;
import org.keycloak.models.utils.FormMessage;
import org.keycloak.provider.ProviderConfigProperty;
import org.keycloak.util.JsonSerialization;

public class RiskgateFormAction implements FormAction, FormActionFactory {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final Logger LOG = Logger.getLogger(RiskgateFormAction.class);

    /** The action of riskgate, or null without an answer of riskgate: then the user passes. */
    private static Object assess(FormContext context, boolean count) {
        try {
            String email = context.getHttpRequest().getDecodedFormParameters().getFirst("email");
            String ip = context.getConnection().getRemoteAddr();
            String body = JsonSerialization.writeValueAsString(
                    Map.of("email", String.valueOf(email), "ip", ip, "count", count));
            HttpRequest request = HttpRequest
                    .newBuilder(URI.create(System.getenv("RISKGATE_URL") + "/v1/assess"))
                    .header("Authorization", "Bearer " + System.getenv("RISKGATE_KEY"))
                    .timeout(Duration.ofSeconds(1))
                    .POST(HttpRequest.BodyPublishers.ofString(body))
                    .build();
            HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IllegalStateException("status " + answer.statusCode());
            }
            return JsonSerialization.readValue(answer.body(), Map.class).get("action");
        } catch (Exception error) {
            LOG.errorf("riskgate: no decision: %s", error.getMessage());
            return null;
        }
    }

    @Override
    public void validate(ValidationContext context) {
        if (!"block".equals(assess(context, false))) {
            context.success();
            return;
        }
        context.error(Errors.INVALID_REGISTRATION);
        context.validationError(
                context.getHttpRequest().getDecodedFormParameters(),
                List.of(new FormMessage("email", "Please use another e-mail address.")));
    }

    /** The form is valid, so the sign-up counts. This action follows that for the profile. */
    @Override
    public void success(FormContext context) {
        if ("review".equals(assess(context, true)) && context.getUser() != null) {
            context.getUser().addRequiredAction(UserModel.RequiredAction.VERIFY_EMAIL);
        }
    }

    @Override
    public String getId() {
        return "riskgate";
    }

    @Override
    public String getDisplayType() {
        return "riskgate";
    }

    @Override
    public String getReferenceCategory() {
        return "riskgate";
    }

    @Override
    public String getHelpText() {
        return "Asks riskgate whether to accept the e-mail address.";
    }

    @Override
    public Requirement[] getRequirementChoices() {
        return new Requirement[] {Requirement.REQUIRED, Requirement.DISABLED};
    }

    @Override
    public FormAction create(KeycloakSession session) {
        return this;
    }

    @Override
    public List<ProviderConfigProperty> getConfigProperties() {
        return List.of();
    }

    @Override
    public boolean isConfigurable() {
        return false;
    }

    @Override
    public boolean isUserSetupAllowed() {
        return false;
    }

    @Override
    public boolean requiresUser() {
        return false;
    }

    @Override
    public boolean configuredFor(KeycloakSession session, RealmModel realm, UserModel user) {
        return true;
    }

    @Override
    public void setRequiredActions(KeycloakSession session, RealmModel realm, UserModel user) {}

    @Override
    public void buildPage(FormContext context, LoginFormsProvider form) {}

    @Override
    public void init(Config.Scope config) {}

    @Override
    public void postInit(KeycloakSessionFactory factory) {}

    @Override
    public void close() {}
}
