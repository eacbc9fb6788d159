import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * Decodes byte strings as the JVM does. Reads their length in a byte, their number in an int, and the strings; answers with a
 * length in an int and the texts in UTF-16, each followed by a surrogate, which no text has.
 */
final class Utf8 {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(System.out);
        for (int length = in.read(); length >= 0; length = in.read()) {
            byte[] data = new byte[length * in.readInt()];
            in.readFully(data);
            StringBuilder text = new StringBuilder();
            for (int at = 0; at < data.length; at += length) {
                text.append(new String(data, at, length, StandardCharsets.UTF_8)).append('\ud800');
            }
            ByteBuffer answer = ByteBuffer.allocate(2 * text.length());
            answer.asCharBuffer().append(text);
            out.writeInt(answer.capacity());
            out.write(answer.array());
            out.flush();
        }
    }
}
