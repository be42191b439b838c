import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;

/** Prints the levels of each feature that a broker of this release supports, a line each: name, lowest, highest. */
public final class FeatureRanges {
    public static void main(String[] args) throws Exception {
        Class<?> features = Class.forName("org.apache.kafka.controller.QuorumFeatures");
        Object supported;
        try {
            supported = features.getMethod("defaultSupportedFeatureMap", boolean.class).invoke(null, false);
        } catch (NoSuchMethodException before40) {
            supported = before40(features);
        }
        Map<?, ?> found = new TreeMap<>((Map<?, ?>) supported);
        for (Map.Entry<?, ?> one : found.entrySet()) {
            Object range = one.getValue();
            Object lowest = range.getClass().getMethod("min").invoke(range);
            Object highest = range.getClass().getMethod("max").invoke(range);
            System.out.println(one.getKey() + " " + lowest + " " + highest);
        }
    }

    private static Object before40(Class<?> features) throws Exception {
        try {
            return features.getMethod("defaultFeatureMap", boolean.class).invoke(null, false);
        } catch (NoSuchMethodException before38) {
            return features.getMethod("defaultFeatureMap").invoke(null);
        }
    }
}
