import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.matcher.ElementMatchers;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.RunListener;

/**
 * Runs the project's own unit tests and keeps every store before and after each load, and as each shutdown leaves it.
 *
 * <p>KEEP/NUMBER/before and KEEP/NUMBER/after, or KEEP/NUMBER/stopped, with KEEP/NUMBER/broker.conf, and KEEP/NUMBER/said:
 * what came of it, a line each.
 */
public final class KeepStores {
    private static final Path KEEP = Path.of(System.getProperty("keep"));
    private static final AtomicInteger NUMBER = new AtomicInteger();
    private static final Set<Object> LOADED = ConcurrentHashMap.newKeySet();
    private static volatile String test = "";

    public static void main(String[] classes) throws ClassNotFoundException {
        new AgentBuilder.Default()
                .disableClassFormatChanges()
                .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION)
                .type(ElementMatchers.named("org.apache.rocketmq.store.DefaultMessageStore"))
                .transform((made, type, loader, module, domain) -> made
                        .visit(Advice.to(Load.class).on(ElementMatchers.named("load")))
                        .visit(Advice.to(Shutdown.class).on(ElementMatchers.named("shutdown"))))
                .installOn(ByteBuddyAgent.install());
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            @Override
            public void testStarted(Description description) {
                test = description.getTestClass().getSimpleName() + "." + description.getMethodName();
            }
        });
        for (String name : classes) {
            core.run(Class.forName(name));
        }
        System.exit(0);
    }

    /** What is done around each load. */
    public static final class Load {
        @Advice.OnMethodEnter
        public static int begin(@Advice.This DefaultMessageStore store) {
            return KeepStores.before(store);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        public static void end(
                @Advice.Enter int number,
                @Advice.This DefaultMessageStore store,
                @Advice.Return boolean loaded,
                @Advice.Thrown Throwable thrown) {
            KeepStores.after(number, store, loaded, thrown);
        }
    }

    /** What is done after each shutdown. */
    public static final class Shutdown {
        @Advice.OnMethodExit
        public static void end(@Advice.This DefaultMessageStore store) {
            KeepStores.stopped(store);
        }
    }

    public static int before(DefaultMessageStore store) {
        int number = NUMBER.incrementAndGet();
        keep(store, number, "before");
        return number;
    }

    public static void after(int number, DefaultMessageStore store, boolean loaded, Throwable thrown) {
        LOADED.add(store);
        keep(store, number, "after");
        say(number, "loaded=" + loaded + "\nthrown=" + thrown + "\nend=" + store.getMaxPhyOffset()
                + "\nbegin=" + store.getMinPhyOffset() + "\nlog=" + store.getCommitLog().getClass().getSimpleName() + "\n");
    }

    public static void stopped(DefaultMessageStore store) {
        if (LOADED.remove(store)) {
            int number = NUMBER.incrementAndGet();
            keep(store, number, "stopped");
            say(number, "");
        }
    }

    private static void say(int number, String text) {
        try {
            Files.writeString(KEEP.resolve(number + "/said"), "test=" + test + "\n" + text);
        } catch (IOException error) {
            error.printStackTrace();
        }
    }

    private static void keep(DefaultMessageStore store, int number, String name) {
        MessageStoreConfig config = store.getMessageStoreConfig();
        String root = new File(config.getStorePathRootDir()).getAbsolutePath();
        Path to = KEEP.resolve(number + "/" + name);
        try {
            Files.createDirectories(to);
            if (new File(root).isDirectory()) {
                new ProcessBuilder("cp", "-a", "--sparse=always", root + "/.", to.toString()).inheritIO().start().waitFor();
            }
            String said = MixAll.properties2String(MixAll.object2Properties(config));
            said = said.replace(root, to.toString()).replace(config.getStorePathRootDir(), to.toString());
            Files.writeString(KEEP.resolve(number + "/broker.conf"), said);
        } catch (IOException | InterruptedException error) {
            error.printStackTrace();
        }
    }
}
