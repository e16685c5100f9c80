import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Hands the client the token of its `sasl.jaas.config`, which it does not read itself. */
public final class Tokens implements AuthenticateCallbackHandler {
    private static final long LIFETIME_MS = 3_600_000;

    private String token;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        token = (String) entries.get(0).getOptions().get("token");
    }

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) each).token(described());
            }
        }
    }

    @Override
    public void close() {
    }

    private OAuthBearerToken described() {
        long now = System.currentTimeMillis();
        return new OAuthBearerToken() {
            @Override
            public String value() {
                return token;
            }

            @Override
            public Set<String> scope() {
                return Collections.singleton("kafka");
            }

            @Override
            public long lifetimeMs() {
                return now + LIFETIME_MS;
            }

            @Override
            public String principalName() {
                return "alice";
            }

            @Override
            public Long startTimeMs() {
                return now;
            }
        };
    }
}
