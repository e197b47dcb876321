import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's own REST catalogue, the one that its clients are tested with, over an SQLite file: FOLDER PORT USER SECRET.
 *
 * <p>It asks for a token, which it gives for USER and SECRET and forgets when it ends. A token's time is over after a
 * number of requests, not after a time, so that each client meets it.
 */
public final class IcebergRest {
  public static void main(String[] args) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.initialize("rest", Map.of(
        "uri", "jdbc:sqlite:" + args[0] + "/catalog.db",
        "clients", "1", // SQLite has one writer
        "jdbc.strict-mode", "true", // a table needs its namespace, as in other catalogues
        "warehouse", "file://" + args[0] + "/warehouse",
        "io-impl", "org.apache.iceberg.TestTables$LocalFileIO"));
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addFilter(new FilterHolder(new Tokens(args[2], args[3])), "/*", EnumSet.of(DispatcherType.REQUEST));
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1])));
    server.setHandler(context);
    server.start();
    server.join();
  }

  /** OAuth 2's client credentials. */
  private static final class Tokens implements Filter {
    private static final int REQUESTS = 12;
    private final Map<String, String> wanted;
    private final Map<String, Integer> left = new ConcurrentHashMap<>();

    Tokens(String user, String secret) {
      wanted = Map.of("client_id", user, "client_secret", secret);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain rest)
        throws IOException, ServletException {
      String header = ((HttpServletRequest) request).getHeader("Authorization");
      Integer now = header == null ? null : left.computeIfPresent(header, (k, n) -> n - 1);
      if (((HttpServletRequest) request).getRequestURI().endsWith("/v1/oauth/tokens")) {
        token(request, (HttpServletResponse) response);
      } else if (now == null) {
        refuse((HttpServletResponse) response, 401, "NotAuthorizedException", "Not authorized: " + header);
      } else if (now < 0) {
        refuse((HttpServletResponse) response, 419, "AuthenticationTimeoutException", "Credentials have timed out");
      } else {
        rest.doFilter(request, response);
      }
    }

    private void token(ServletRequest request, HttpServletResponse response) throws IOException {
      if (!wanted.entrySet().stream().allMatch(e -> e.getValue().equals(request.getParameter(e.getKey())))) {
        answer(response, 401, "{\"error\": \"invalid_client\", \"error_description\": \"Not the secret of "
            + request.getParameter("client_id") + ": " + request.getParameter("client_secret") + "\"}");
        return;
      }
      String token = UUID.randomUUID().toString();
      left.put("Bearer " + token, REQUESTS);
      answer(response, 200, "{\"access_token\": \"" + token + "\", \"token_type\": \"bearer\", \"expires_in\": 3600}");
    }

    private static void refuse(HttpServletResponse response, int status, String type, String message)
        throws IOException {
      answer(response, status, "{\"error\": {\"message\": \"" + message + "\", \"type\": \"" + type
          + "\", \"code\": " + status + "}}");
    }

    private static void answer(HttpServletResponse response, int status, String json) throws IOException {
      response.setStatus(status);
      response.setContentType("application/json");
      response.getWriter().write(json);
    }
  }
}
