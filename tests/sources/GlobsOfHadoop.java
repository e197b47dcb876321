// What Hadoop makes of globs: reads lines of JSON strings, `java -cp "$SPARK/jars/*" GlobsOfHadoop.java names.json`.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.GlobPattern;
import org.apache.hadoop.fs.Path;

/**
 * A line of input is {"glob": ..., "names": [...]} or {"glob": ..., "root": folder}. Its line of output is "refused",
 * or which names match as a text of 0 and 1, or the paths below root that are found.
 */
public class GlobsOfHadoop {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        FileSystem local = FileSystem.getLocal(new Configuration()).getRawFileSystem();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = json.readTree(line);
            String glob = asked.get("glob").asText();
            Object answer;
            try {
                answer = asked.has("root")
                    ? found(local, asked.get("root").asText(), glob)
                    : matches(glob, asked.get("names"));
            } catch (Exception e) {
                answer = "refused";
            }
            System.out.println(json.writeValueAsString(answer));
        }
    }

    private static String matches(String glob, Iterable<JsonNode> names) {
        GlobPattern pattern = new GlobPattern(glob);
        StringBuilder found = new StringBuilder();
        for (JsonNode name : names) {
            found.append(pattern.matches(name.asText()) ? '1' : '0');
        }
        return found.toString();
    }

    private static TreeSet<String> found(FileSystem local, String root, String glob) throws Exception {
        TreeSet<String> paths = new TreeSet<>();
        FileStatus[] all = local.globStatus(new Path(root + "/" + glob));
        for (FileStatus one : all == null ? new FileStatus[0] : all) {
            paths.add(one.getPath().toUri().getPath().substring(root.length()));
        }
        return paths;
    }
}
