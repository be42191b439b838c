import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;

/** Prints the levels of each feature that a broker of this release supports, a line each: name, lowest, highest. */
public final class FeatureRanges {
    public static void main(String[] args) throws Exception {
        Class<?> features = Class.forName("org.apache.kafka.controller.QuorumFeatures");
        Method supported;
        try {
            supported = features.getMethod("defaultSupportedFeatureMap", boolean.class);
        } catch (NoSuchMethodException before40) {
            supported = features.getMethod("defaultFeatureMap", boolean.class);
        }
        Map<?, ?> found = new TreeMap<>((Map<?, ?>) supported.invoke(null, false));
        for (Map.Entry<?, ?> one : found.entrySet()) {
            Object range = one.getValue();
            Object lowest = range.getClass().getMethod("min").invoke(range);
            Object highest = range.getClass().getMethod("max").invoke(range);
            System.out.println(one.getKey() + " " + lowest + " " + highest);
        }
    }
}
