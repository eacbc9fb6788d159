import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** Reads byte strings, each behind its length in a byte, and writes what the JVM decodes them to. */
final class Utf8 {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new java.io.BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int length = in.read(); length >= 0; length = in.read()) {
            byte[] data = new byte[length];
            in.readFully(data);
            char[] text = new String(data, StandardCharsets.UTF_8).toCharArray();
            out.writeByte(text.length);
            for (char each : text) {
                out.writeChar(each);
            }
        }
        out.flush();
    }
}
