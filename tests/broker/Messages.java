import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Messages with anything in them, as Kafka's generated classes write them and print them. Each line on stdin names a class; the
 * answer has, for each of its versions, lines of the version, the bytes in base64 and the JSON, and ends with an empty line.
 */
public class Messages {
  private static final int TRIES = 40;
  private static final String[] TEXTS = {"", "orders", "\"a\\b\"\n\u001f/", "h\u00e9llo \ud83d\ude00"};
  private static final double[] DOUBLES = {0, 1.5, -3e10, 12345678, 1e7, 9999999.5, 0.00025, 1e21, Double.NaN};

  private final Random random;
  private double filled;

  Messages(long seed) {
    random = new Random(seed);
  }

  public static void main(String[] args) throws Exception {
    Messages messages = new Messages(Long.parseLong(args[0]));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String name = in.readLine(); name != null; name = in.readLine()) {
      messages.print(Class.forName(name));
      System.out.println();
    }
  }

  private void print(Class<?> kind) throws Exception {
    short low = kind.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
    short high = kind.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
    var converter = Class.forName(kind.getName() + "JsonConverter").getMethod("write", kind, short.class);
    for (short version = low; version <= high; version++) {
      for (int each = 0; each < TRIES; each++) {
        // The fewer fields are filled, the fewer are there that the version does not have, or null where none may be.
        filled = 1.0 - (double) each / TRIES;
        Message message = (Message) make(kind);
        try {
          ObjectSerializationCache cache = new ObjectSerializationCache();
          ByteBuffer data = ByteBuffer.allocate(message.size(cache, version));
          message.write(new ByteBufferAccessor(data), cache, version);
          JsonNode json = (JsonNode) converter.invoke(null, message, version);
          System.out.println(version + " " + Base64.getEncoder().encodeToString(data.array()) + " " + json);
        } catch (ReflectiveOperationException | RuntimeException error) {
          continue;
        }
      }
    }
  }

  private Object make(Class<?> kind) throws Exception {
    Object made = kind.getDeclaredConstructor().newInstance();
    for (Field field : kind.getDeclaredFields()) {
      if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_") || random.nextDouble() > filled) {
        continue;
      }
      field.setAccessible(true);
      boolean isNull = !field.getType().isPrimitive() && random.nextInt(6) == 0;
      if (Modifier.isFinal(field.getModifiers()) || isLink(field)) {
        continue;
      }
      Object value = isNull ? null : value(kind, field.getType(), field.getGenericType());
      field.set(made, field.getName().equals("port") ? (Object) random.nextInt(1 << 16) : value);
    }
    return made;
  }

  /** Whether it belongs to the collection that the object is an element of. */
  private static boolean isLink(Field field) {
    return field.getName().equals("next") || field.getName().equals("prev");
  }

  private Object value(Class<?> owner, Class<?> kind, Type generic) throws Exception {
    if (kind == boolean.class) return random.nextBoolean();
    if (kind == byte.class) return (byte) random.nextInt();
    if (kind == short.class) return (short) random.nextInt();
    if (kind == int.class) return random.nextInt();
    if (kind == long.class) return random.nextLong();
    if (kind == double.class) return DOUBLES[random.nextInt(DOUBLES.length)];
    if (kind == String.class) return TEXTS[random.nextInt(TEXTS.length)];
    if (kind == Uuid.class) return new Uuid(random.nextLong(), random.nextLong());
    if (kind == ByteBuffer.class) return ByteBuffer.wrap((byte[]) value(owner, byte[].class, byte[].class));
    if (kind == byte[].class) {
      byte[] data = new byte[random.nextInt(5)];
      random.nextBytes(data);
      return data;
    }
    if (kind == List.class) {
      Class<?> element = boxed((Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0]);
      return fill(new ArrayList<>(), owner, element);
    }
    if (Collection.class.isAssignableFrom(kind)) {
      Type of = ((ParameterizedType) kind.getGenericSuperclass()).getActualTypeArguments()[0];
      return fill((Collection<?>) kind.getDeclaredConstructor().newInstance(), owner, (Class<?>) of);
    }
    return make(kind);
  }

  @SuppressWarnings("unchecked")
  private <T> Collection<T> fill(Collection<T> collection, Class<?> owner, Class<?> element) throws Exception {
    for (int left = random.nextInt(3); left > 0; left--) {
      collection.add((T) value(owner, element, element));
    }
    return collection;
  }

  private static Class<?> boxed(Class<?> kind) {
    if (kind == Integer.class) return int.class;
    if (kind == Short.class) return short.class;
    if (kind == Long.class) return long.class;
    if (kind == Byte.class) return byte.class;
    return kind;
  }
}
