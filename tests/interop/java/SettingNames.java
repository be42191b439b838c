import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;

/** Prints the settings that a broker of this release reads, a line each: name, tab, default. Works for both families. */
public final class SettingNames {
    private static final String[] ROCKETMQ = {
        "org.apache.rocketmq.common.BrokerConfig", "org.apache.rocketmq.store.config.MessageStoreConfig",
        "org.apache.rocketmq.remoting.netty.NettyServerConfig", "org.apache.rocketmq.remoting.netty.NettyClientConfig",
        "org.apache.rocketmq.auth.config.AuthConfig",
    };

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // the classes may print, too
        Map<String, String> found = new TreeMap<>();
        try {
            kafka(found);
        } catch (ClassNotFoundException none) {
            for (String name : ROCKETMQ) {
                try {
                    bean(Class.forName(name), found);
                } catch (ClassNotFoundException later) {
                    System.err.println(name + " came later");
                }
            }
        }
        found.forEach((name, value) -> out.println(name + "\t" + value.replace("\n", " ").replace("\t", " ")));
    }

    /** Names and defaults as MixAll.properties2Object takes them. */
    private static void bean(Class<?> type, Map<String, String> found) throws Exception {
        Object made = type.getDeclaredConstructor().newInstance();
        for (Method set : type.getMethods()) {
            String name = set.getName();
            if (!name.startsWith("set") || name.length() < 4 || set.getParameterCount() != 1) {
                continue;
            }
            String key = name.substring(3, 4).toLowerCase() + name.substring(4);
            String value = "";
            for (String prefix : new String[] {"get", "is"}) {
                try {
                    value = String.valueOf(type.getMethod(prefix + name.substring(3)).invoke(made));
                    break;
                } catch (NoSuchMethodException other) {
                    continue;
                }
            }
            found.putIfAbsent(key, value);
        }
    }

    private static void kafka(Map<String, String> found) throws Exception {
        Object definition;
        try {
            definition = Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig").getField("CONFIG_DEF").get(null);
        } catch (ClassNotFoundException | NoSuchFieldException before39) {
            Class<?> companion = Class.forName("kafka.server.KafkaConfig$");
            Field field = companion.getDeclaredField("configDef");
            field.setAccessible(true);
            definition = field.get(companion.getField("MODULE$").get(null));
        }
        Map<?, ?> keys = (Map<?, ?>) definition.getClass().getMethod("configKeys").invoke(definition);
        for (Map.Entry<?, ?> one : keys.entrySet()) {
            Object value = one.getValue().getClass().getField("defaultValue").get(one.getValue());
            boolean has = (Boolean) one.getValue().getClass().getMethod("hasDefault").invoke(one.getValue());
            found.put(String.valueOf(one.getKey()), has ? String.valueOf(value) : "");
        }
    }
}
