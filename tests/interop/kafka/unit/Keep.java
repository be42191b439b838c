import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.matcher.ElementMatchers;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.mockito.Mockito;

/**
 * Keeps the directory of a partition before and after each load of a log in the project's own unit tests.
 *
 * <p>KEEP/NUMBER/before, KEEP/NUMBER/after, and KEEP/NUMBER/said: what was asked and what came of it, a line each.
 */
public final class Keep implements BeforeEachCallback {
    private static final Path KEEP = Path.of(System.getProperty("keep"));
    private static final AtomicInteger NUMBER = new AtomicInteger();
    private static volatile String test = "";

    static {
        new AgentBuilder.Default()
                .disableClassFormatChanges()
                .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION)
                .type(ElementMatchers.named("org.apache.kafka.storage.internals.log.LogLoader"))
                .transform((made, type, loader, module, domain) -> made.visit(Advice.to(Load.class)
                        .on(ElementMatchers.named("load").and(ElementMatchers.takesArguments(0)))))
                .installOn(ByteBuddyAgent.install());
    }

    /** What is done around each load. */
    public static final class Load {
        @Advice.OnMethodEnter
        public static int begin(@Advice.This Object loader) {
            return Keep.before(loader);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        public static void end(
                @Advice.Enter int number,
                @Advice.This Object loader,
                @Advice.Return Object made,
                @Advice.Thrown Throwable thrown) {
            Keep.after(number, loader, made, thrown);
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        test = context.getRequiredTestClass().getSimpleName() + "." + context.getRequiredTestMethod().getName();
    }

    public static int before(Object loader) {
        int number = NUMBER.incrementAndGet();
        try {
            copy(((File) field(loader, "dir")).toPath(), KEEP.resolve(number + "/before"));
        } catch (IOException | ReflectiveOperationException error) {
            error.printStackTrace();
        }
        return number;
    }

    public static void after(int number, Object loader, Object made, Throwable thrown) {
        try {
            File directory = (File) field(loader, "dir");
            copy(directory.toPath(), KEEP.resolve(number + "/after"));
            boolean isMocked = Mockito.mockingDetails(field(loader, "producerStateManager")).isMock();
            String said = "test=" + test + "\ndirectory=" + directory.getName()
                    + "\nclean=" + field(loader, "hadCleanShutdown")
                    + "\nstart=" + field(loader, "logStartOffsetCheckpoint")
                    + "\npoint=" + field(loader, "recoveryPointCheckpoint")
                    + "\nremote=" + field(loader, "isRemoteLogEnabled")
                    + "\nmocked=" + isMocked + "\nthrown=" + thrown + "\nmade=" + made + "\n";
            Files.writeString(KEEP.resolve(number + "/said"), said);
        } catch (IOException | ReflectiveOperationException error) {
            error.printStackTrace();
        }
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        Class<?> type = of.getClass();
        while (true) {
            try {
                Field found = type.getDeclaredField(name);
                found.setAccessible(true);
                return found.get(of);
            } catch (NoSuchFieldException error) {
                type = type.getSuperclass();
                if (type == null) {
                    throw error;
                }
            }
        }
    }

    private static void copy(Path from, Path to) throws IOException {
        Files.createDirectories(to);
        if (!Files.isDirectory(from)) {
            return;
        }
        try (Stream<Path> all = Files.list(from)) {
            for (Path path : (Iterable<Path>) all::iterator) {
                if (Files.isRegularFile(path)) {
                    sparse(path, to.resolve(path.getFileName()));
                }
            }
        }
    }

    private static void sparse(Path from, Path to) throws IOException {
        try (RandomAccessFile in = new RandomAccessFile(from.toFile(), "r");
                RandomAccessFile out = new RandomAccessFile(to.toFile(), "rw")) {
            byte[] room = new byte[1 << 16];
            long at = 0;
            for (int size = in.read(room); size > 0; size = in.read(room)) {
                boolean isZero = true;
                for (int n = 0; n < size && isZero; n++) {
                    isZero = room[n] == 0;
                }
                if (!isZero) {
                    out.seek(at);
                    out.write(room, 0, size);
                }
                at += size;
            }
            out.setLength(in.length());
        }
    }
}
