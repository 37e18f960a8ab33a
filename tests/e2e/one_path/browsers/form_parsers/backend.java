// Like backends.py, with the parsers of Tomcat.
import java.io.*;
import java.nio.charset.*;
import java.util.*;
import org.apache.tomcat.util.http.Parameters;
import org.apache.tomcat.util.http.fileupload.*;
import org.apache.tomcat.util.http.fileupload.disk.DiskFileItemFactory;
import org.apache.tomcat.util.json.*;

class Backend {
    static final List<String> NAMES = List.of("email", "user[email]", "user.email", "email[]");

    static List<String> readMultipart(String type, byte[] body, Charset charset) throws Exception {
        FileUpload upload = new FileUpload();
        upload.setFileItemFactory(new DiskFileItemFactory());
        UploadContext context = new UploadContext() {
            public String getCharacterEncoding() { return charset.name(); }
            public String getContentType() { return type; }
            public long contentLength() { return body.length; }
            public InputStream getInputStream() { return new ByteArrayInputStream(body); }
        };
        List<String> found = new ArrayList<>();
        for (FileItem item : upload.parseRequest(context)) {
            if (item.isFormField() && NAMES.contains(item.getFieldName())) {
                found.add(item.getString(charset.name()));
            }
        }
        return found;
    }

    static List<String> readUrlencoded(byte[] body, Charset charset) {
        Parameters parameters = new Parameters();
        parameters.setCharset(charset);
        parameters.processParameters(body, 0, body.length);
        List<String> found = new ArrayList<>();
        for (String name : NAMES) {
            String[] values = parameters.getParameterValues(name);
            found.addAll(values == null ? List.of() : List.of(values));
        }
        return found;
    }

    static List<String> read(String type, byte[] body) throws Exception {
        org.apache.coyote.Request request = new org.apache.coyote.Request();
        request.getMimeHeaders().addValue("content-type").setString(type);
        Charset charset = request.getCharset();
        charset = charset == null ? StandardCharsets.UTF_8 : charset;
        String mediaType = type.split(";")[0].trim().toLowerCase();
        if (mediaType.startsWith("multipart/")) {
            return readMultipart(type, body, charset);
        }
        boolean isForm = mediaType.equals("application/x-www-form-urlencoded");
        return isForm ? readUrlencoded(body, charset) : List.of();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> form = new JSONParser(line).parseObject();
            byte[] body = Base64.getDecoder().decode((String) form.get("body"));
            // The parser leaves escapes as they are.
            String type = ((String) form.get("type")).replaceAll("\\\\(.)", "$1");
            List<String> found = List.of();
            try {
                found = read(type, body);
            } catch (Exception error) {
                // The backend refuses the form.
            }
            StringJoiner values = new StringJoiner(",", "{\"tomcat\":[", "]}");
            found.forEach(value -> values.add("\"" + JSONFilter.escape(value) + "\""));
            out.println(values);
        }
    }
}
