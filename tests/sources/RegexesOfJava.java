// What Java finds: reads lines of JSON, `java -cp "$SPARK/jars/*" RegexesOfJava.java < questions`.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

/** A line of input is {"pattern": ..., "texts": [...]}; its line of output "refused", or 0 and 1, as texts have a match. */
public class RegexesOfJava {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = json.readTree(line);
            StringBuilder found = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(asked.get("pattern").asText());
                for (JsonNode text : asked.get("texts")) {
                    found.append(pattern.matcher(text.asText()).find() ? '1' : '0');
                }
            } catch (RuntimeException | StackOverflowError e) { // not only of syntax: Java does not foresee all
                found = new StringBuilder("refused");
            }
            System.out.println(json.writeValueAsString(found.toString()));
        }
    }
}
